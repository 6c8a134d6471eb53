"""Runs in SQL: their drivers, checkpoints and figures."""
