"""Running counts that many centers increment: tallies, figures, counts of hosts.

A transaction collects its counts and writes them at its very end. On PostgreSQL and MariaDB
they are sent with COMMIT in one message: the server locks these shared rows, adds and commits
without waiting for the center, so a frozen center never holds them. Run by centers only.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

import sqlalchemy as sa


class Sums(NamedTuple):
    """Rows of one table, sorted by key, so that two centers lock them in the same order."""

    table: sa.Table
    #: The key first. Columns in neither `adds` nor `sets` are written for new rows only.
    columns: Sequence[str]
    keys: int
    adds: Sequence[str]
    rows: list[tuple[Any, ...]]
    sets: Sequence[str] = ()
    #: The smaller value is kept, and the larger one.
    lowers: Sequence[str] = ()
    raises: Sequence[str] = ()


def statement(sums: Sums, rows: int, mark: str, *, mysql: bool = False) -> str:
    """An INSERT of `rows` rows that adds to existing rows."""
    name, columns = sums.table.name, sums.columns
    new = "VALUES({})" if mysql else "excluded.{}"
    adds = [f"{column} = {name}.{column} + {new.format(column)}" for column in sums.adds]
    sets = [f"{column} = {new.format(column)}" for column in sums.sets]
    sets += [_better(name, column, new.format(column), "<") for column in sums.lowers]
    sets += [_better(name, column, new.format(column), ">") for column in sums.raises]
    one = f"({', '.join([mark] * len(columns))})"
    known = f"ON CONFLICT ({', '.join(columns[: sums.keys])}) DO UPDATE SET"
    return (
        f"INSERT INTO {name} ({', '.join(columns)}) VALUES {', '.join([one] * rows)}"  # noqa: S608
        f" {'ON DUPLICATE KEY UPDATE' if mysql else known} {', '.join(adds + sets)}"
    )


def _better(table: str, column: str, new: str, sign: str) -> str:
    known = f"{table}.{column}"
    return f"{column} = CASE WHEN {new} {sign} {known} THEN {new} ELSE {known} END"


def flat(sums: Sums) -> tuple[Any, ...]:
    """The values of all rows, one after the other."""
    return tuple(chain.from_iterable(sums.rows))
