"""The store on SQL: one code base for SQLite, PostgreSQL and MariaDB/MySQL.

`schema` defines the tables, `engine` runs transactions and contains all differences between the
databases, and the other folders implement the Protocols of `store/ports`, one domain each.
"""
