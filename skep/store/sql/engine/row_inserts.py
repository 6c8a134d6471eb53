"""Parts of inserts that `dialect.py` puts together: lengths, ids and PostgreSQL's arrays.

Run by centers only; it holds no state.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from skep.errors import InvalidInput

Row = tuple[Any, ...]


class Inserted(NamedTuple):
    """How many rows are new, and between which ids they are."""

    new: int
    low: int
    high: int


def check_lengths(table: sa.Table, columns: Sequence[str], rows: list[Row]) -> None:
    """Raises InvalidInput for a text that is longer than its column."""
    for column, values in zip(columns, zip(*rows, strict=True), strict=True):
        limit = getattr(table.c[column].type, "length", None)
        if limit and max(map(len, values)) > limit:
            raise InvalidInput(f"{table.name}.{column}: longer than {limit} characters")


def highest_id(connection: sa.Connection, table: sa.Table) -> int:
    """Ids that are chosen later are above it."""
    query = f"SELECT MAX(id) FROM {table.name}"  # noqa: S608 - own names
    return int(connection.exec_driver_sql(query).scalar() or 0)


def postgres_insert(table: sa.Table, columns: Sequence[str], *, spanning: bool = False) -> str:
    """Inserts rows whose unique key is new; each column is an array. With `spanning` it answers
    with the fields of `Inserted`."""
    names = ", ".join(f'"{column}"' for column in columns)
    arrays = ", ".join(f"%s::{postgres_type(table, column)}[]" for column in columns)
    statement = (
        f"INSERT INTO {table.name} ({names}) SELECT * FROM unnest({arrays})"  # noqa: S608
        " ON CONFLICT DO NOTHING"
    )
    if not spanning:
        return statement
    fresh = f"WITH fresh AS ({statement} RETURNING id)"
    return f"{fresh} SELECT COUNT(*), COALESCE(MIN(id), 0), COALESCE(MAX(id), 0) FROM fresh"  # noqa: S608 - own words


@functools.cache
def postgres_type(table: sa.Table, column: str) -> str:
    """The type of a column in PostgreSQL."""
    from sqlalchemy.dialects import postgresql

    dialect: sa.Dialect = postgresql.dialect()  # type: ignore[no-untyped-call]
    return table.c[column].type.compile(dialect=dialect)
