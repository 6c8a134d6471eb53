"""Column types and indexes that every table shares, and the metadata. Run by centers only.

Types are standard ones; a dialect replaces those that its database needs otherwise.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from skep.store.sql.engine.dialect import ColumnKind
from skep.store.sql.engine.dialects.registry import DIALECTS, dialect_named

metadata = sa.MetaData()


def _column(standard: Any, kind: ColumnKind, length: int = 0) -> Any:
    for dialect in DIALECTS:
        own = dialect.column_type(kind, length)
        if own is not None:
            standard = standard.with_variant(own, *dialect.engine_names)
    return standard


def name_of(length: int) -> sa.String:
    """Short text that is compared by every character and its case, in every engine."""
    found: sa.String = _column(sa.String(length), ColumnKind.NAME, length)
    return found


BigId: sa.BigInteger = _column(sa.BigInteger(), ColumnKind.BIG_ID)


Exact = name_of(64)


Seconds = sa.Float(53)


Digest: sa.LargeBinary = _column(sa.LargeBinary(16), ColumnKind.DIGEST, 16)


Digest32: sa.LargeBinary = _column(sa.LargeBinary(32), ColumnKind.DIGEST, 32)


Bytes: sa.LargeBinary = _column(sa.LargeBinary(), ColumnKind.BYTES)


LongText: sa.Text = _column(sa.Text(), ColumnKind.LONG_TEXT)


def can_be_partial(*_: Any, dialect: sa.Dialect, **__: Any) -> bool:
    return dialect_named(dialect.name).partial_indexes


def is_whole(*_: Any, dialect: sa.Dialect, **__: Any) -> bool:
    return not dialect_named(dialect.name).partial_indexes


def is_collated(*_: Any, dialect: sa.Dialect, **__: Any) -> bool:
    """Names are in the order of a language, unless an index says otherwise."""
    return not dialect_named(dialect.name).text.finds_prefixes


def partial_index(name: str, predicate: sa.TextClause, *columns: sa.Column[Any]) -> sa.Index:
    """An index of the matching rows, on engines with partial indexes. The predicate is added when
    the index is created: as an argument it would import every engine everywhere."""
    index = sa.Index(name, *columns)

    def add_predicate(_: sa.Index, connection: sa.Connection, **__: Any) -> None:
        engine = connection.dialect.name
        if dialect_named(engine).partial_indexes:
            index.dialect_options[engine]["where"] = predicate

    sa.event.listen(index, "before_create", add_predicate)
    return index
