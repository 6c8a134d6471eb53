"""Conditions that must match the predicates of partial indexes word for word.

A bound parameter would hide the state from the planner, and the index would not be used.
"""

from __future__ import annotations

import sqlalchemy as sa

from skep.model.states import RequestState
from skep.store.sql.schema.requests import requests

MORTAL = sa.text("requests.expires_at IS NOT NULL AND requests.state IN (0, 3)")
FAILED_BEFORE = sa.text("requests.failures > 0")
CLAIMABLE_BLOCKS = sa.text("blocks.state IN (1, 16)")
USING_BLOCKS = sa.text("blocks.state = 2")
ENDED_BLOCKS = sa.text("blocks.state IN (4, 8)")
FINISHED_BLOCKS = sa.text("blocks.state IN (4, 8) AND blocks.collected = 0")


def stored(state: RequestState) -> sa.ColumnElement[bool]:
    """Requests whose row has this state."""
    return requests.c.state == sa.literal_column(str(int(state)))
