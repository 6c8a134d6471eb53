"""Application jobs in SQL: instances, logs, packages."""
