"""Ends the open requests of a run that was cancelled or finished early.

Run by centers only, inside one transaction. Leased requests end with the agent's report, or with
the lease.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from skep.model.states import BlockState, RequestState
from skep.store.sql.blocks.rows import end_requests, members_of, note_history
from skep.store.sql.engine.database import Tx
from skep.store.sql.engine.in_list import in_list
from skep.store.sql.engine.predicates import CLAIMABLE_BLOCKS, stored
from skep.store.sql.hosts.holds import let_go
from skep.store.sql.schema.blocks import blocks
from skep.store.sql.schema.requests import requests

#: Maximum blocks of one statement; SQLite limits the length of a statement.
CANCEL_BLOCKS = 100


def cancel_open(tx: Tx, run: int, now: float, detail: str) -> int:
    """All requests of a run that are not leased become CANCELLED; returns how many."""
    count = change_all(tx, run, RequestState.WAITING, RequestState.CANCELLED)
    count += change_all(tx, run, RequestState.DELAYED, RequestState.CANCELLED)
    query = sa.select(blocks.c.id).where(blocks.c.run == run, CLAIMABLE_BLOCKS)
    ids = list(tx.execute(query.order_by(blocks.c.id).with_for_update()).scalars())
    for start in range(0, len(ids), CANCEL_BLOCKS):
        count += _cancel_blocks(tx, run, ids[start : start + CANCEL_BLOCKS], now, detail)
    return count


def _cancel_blocks(tx: Tx, run: int, ids: list[int], now: float, detail: str) -> int:
    members = [number for found in members_of(tx.connection, ids).values() for number in found]
    changed = end_requests(tx, members, RequestState.CANCELLED)
    of_blocks = in_list(blocks.c.id, ids)
    tx.execute(sa.update(blocks).where(of_blocks).values(state=int(BlockState.FAILED), open=0))
    note_history(tx, ids, BlockState.FAILED, now, detail)
    let_go(tx, ids, now)
    tx.move(run, RequestState.QUEUED, RequestState.CANCELLED, changed)
    return changed


def change_all(tx: Tx, run: int, before: RequestState, to: RequestState, **values: Any) -> int:
    """Move every request of a run from one state to another, with one statement."""
    of_run = sa.and_(requests.c.run == run, stored(before))
    change = sa.update(requests).where(of_run).values(state=int(to), **values)
    count = int(tx.execute(change).rowcount)
    tx.move(run, before, to, count)
    return count
