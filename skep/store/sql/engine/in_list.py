"""`column IN (...)` for numbers of rows. Used by every query that names its rows.

A short list travels as parameters: the statement's text stays the same, so that it is
compiled and planned once. A long one is written out, because thousands of parameters would
cost more than the statement. What is written out never comes again: it must stay out of the
cache of compiled statements, where hundreds of such took 25 MB and pushed out the others.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa

from skep.store.sql.engine.dialect import id_list

FEW = 50


def in_list(column: sa.Column[Any], numbers: Iterable[int]) -> sa.ColumnElement[bool]:
    """Rows whose `column` is one of the numbers; none when there are none."""
    wanted = [int(number) for number in numbers]
    if len(wanted) <= FEW:
        return column.in_(wanted)
    return written_out(f"{column.table.name}.{column.name} IN ({id_list(wanted)})")


class _WrittenOut(sa.ColumnClause[bool]):
    """Text with numbers in it; no statement that has one is kept compiled."""

    inherit_cache = False


def written_out(condition: str) -> sa.ColumnElement[bool]:
    """A condition made of our own words and integers only."""
    return _WrittenOut(condition, sa.Boolean(), is_literal=True)
