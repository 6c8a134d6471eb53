"""Records into tables: SQLite, PostgreSQL, MySQL and MariaDB, through SQLAlchemy Core.

Runs in the sink's thread, where the items are; it never sees a store of ours.
"""
