"""Conditions whose wording matters to planners and to the cache of compiled statements.

States repeat the predicates of partial indexes: a bound parameter would hide the state from
the planner, and the index would not be used. A short list of numbers travels as parameters, so
that its statement is compiled and planned once. A long one is written out, since thousands of
parameters cost more than the statement, and stays out of the cache: hundreds took 25 MB there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import sqlalchemy as sa

from skep.model.states import RequestState
from skep.store.sql.engine.dialect import id_list
from skep.store.sql.schema.requests import requests

MORTAL = sa.text("requests.expires_at IS NOT NULL AND requests.state IN (0, 3)")
FAILED_BEFORE = sa.text("requests.failures > 0")
CLAIMABLE_BLOCKS = sa.text("blocks.state IN (1, 16)")
USING_BLOCKS = sa.text("blocks.state = 2")
ENDED_BLOCKS = sa.text("blocks.state IN (4, 8)")
FINISHED_BLOCKS = sa.text("blocks.state IN (4, 8) AND blocks.collected = 0")
#: Numbers that travel as parameters.
FEW = 50


def stored(state: RequestState) -> sa.ColumnElement[bool]:
    """Requests whose row has this state."""
    return requests.c.state == sa.literal_column(str(int(state)))


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
