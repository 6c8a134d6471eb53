"""The store on SQL: one code base for SQLite, PostgreSQL and MariaDB/MySQL.

`schema` says what is kept, `engine` runs transactions and holds every difference between the
databases, and the other folders answer the Protocols of `store/ports`, one domain each.
"""
