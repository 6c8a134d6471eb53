"""The store on SQL: one code base for SQLite, PostgreSQL and MariaDB/MySQL.

`tables` says what is kept, `database` runs transactions, `dialect` holds every difference
between the engines, and each other file answers one Protocol of `store/ports.py`.
"""
