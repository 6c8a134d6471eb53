"""`column IN (...)` for numbers of rows. Used by every query that names its rows.

A short list travels as parameters: the statement's text stays the same, so that it is
compiled and planned once. A long one is written out, because thousands of parameters would
cost more than the statement.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa

from skep.store.sql.dialect import id_list

FEW = 50


def among(column: sa.Column[Any], numbers: Iterable[int]) -> sa.ColumnElement[bool]:
    """Rows whose `column` is one of the numbers; none when there are none."""
    wanted = [int(number) for number in numbers]
    if len(wanted) <= FEW:
        return column.in_(wanted)
    return sa.literal_column(f"{column.table.name}.{column.name} IN ({id_list(wanted)})")
