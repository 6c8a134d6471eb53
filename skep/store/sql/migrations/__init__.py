"""Alembic scripts of the SQL store."""
