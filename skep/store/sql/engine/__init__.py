"""Databases: transactions, the writer, dialects, migration, conditions. It knows no tables."""
