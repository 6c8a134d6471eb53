"""Requests in SQL: accepted, waiting, cancelled, dead, deleted; the ledger."""
