"""Column types and indexes that every table shares, and the metadata. Run by centers only."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

metadata = sa.MetaData()


MYSQL = ("mysql", "mariadb")


#: Engines with partial indexes.
PARTIAL = ("sqlite", "postgresql")


def name_of(length: int) -> sa.String:
    """Short text that is compared by every character and its case, in every engine.

    MySQL would take both from the database's defaults, which can be Latin-1 and lenient.
    """
    exact = mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin")
    return sa.String(length).with_variant(exact, *MYSQL)


BigId = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


Exact = name_of(64)


Seconds = sa.Float(53)


Digest = sa.LargeBinary(16).with_variant(mysql.BINARY(16), *MYSQL)


Digest32 = sa.LargeBinary(32).with_variant(mysql.BINARY(32), *MYSQL)


Bytes = sa.LargeBinary().with_variant(mysql.LONGBLOB(), *MYSQL)


LongText = sa.Text().with_variant(
    mysql.MEDIUMTEXT(charset="utf8mb4", collation="utf8mb4_bin"), *MYSQL
)


def can_be_partial(*_: Any, dialect: sa.Dialect, **__: Any) -> bool:
    return dialect.name in PARTIAL


def is_whole(*_: Any, dialect: sa.Dialect, **__: Any) -> bool:
    return dialect.name in MYSQL


def partial_index(name: str, predicate: sa.TextClause, *columns: sa.Column[Any]) -> sa.Index:
    """An index of the matching rows, on engines with partial indexes. PostgreSQL's predicate is
    added when the index is created: as an argument it would import that engine everywhere."""
    index = sa.Index(name, *columns, sqlite_where=predicate)

    def add_predicate(_: sa.Index, connection: sa.Connection, **__: Any) -> None:
        if connection.dialect.name == "postgresql":
            index.dialect_options["postgresql"]["where"] = predicate

    sa.event.listen(index, "before_create", add_predicate)
    return index
