"""`column IN (...)` for numbers of rows. Used by every query that names its rows.

A short list is sent as parameters: the text of the statement stays the same, so that it is
compiled and planned once. A long list is written into the statement, because thousands of
parameters would cost more than the statement. Such a statement never repeats: it must stay out
of the cache of compiled statements, where hundreds of them took 25 MB and evicted the others.
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
    """Text with numbers; a statement that contains one is not cached."""

    inherit_cache = False


def written_out(condition: str) -> sa.ColumnElement[bool]:
    """A condition built from constants and integers only."""
    return _WrittenOut(condition, sa.Boolean(), is_literal=True)
