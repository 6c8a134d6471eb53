"""Records into tables: SQLite, PostgreSQL, MySQL and MariaDB, through SQLAlchemy Core."""
