"""Takes blocks back from agents that died or stopped responding. Run by centers only.

A lost lease is not a failed download: the block is ready again at once and its requests keep
their retries. A block that is lost repeatedly probably contains a request that kills agents, so
it is first split into single requests and finally given up.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import sqlalchemy as sa

from skep.model.block import BlockRef
from skep.model.failures.failure_class import FailureClass
from skep.model.states import BlockState, RequestState
from skep.store.ports.blocks import Freed
from skep.store.sql.blocks.rows import (
    Packed,
    close_block,
    new_blocks,
    note_history,
    open_members,
    works_of,
)
from skep.store.sql.blocks.settle import ATTEMPT_COLUMNS
from skep.store.sql.engine.database import Tx
from skep.store.sql.engine.row_inserts import Row
from skep.store.sql.hosts.holds import let_go
from skep.store.sql.requests.dead_letter import name_failure, name_fingerprint
from skep.store.sql.runs.answer_deadlines import lose_limit
from skep.store.sql.runs.runs import HeldRun
from skep.store.sql.schema.blocks import blocks
from skep.store.sql.schema.requests import attempts

#: Number of losses after which a block is split into single requests, to find the cause.
SPLIT_AFTER = 3


def take_back(tx: Tx, row: Any, run: HeldRun, now: float, lease_limit: int) -> list[Freed]:
    """Take back one overdue block; returns the result."""
    reason = _reason(row, now)
    losses = row.losses + 1
    if run.ended:
        return [_end(tx, row, now, RequestState.CANCELLED, f"{reason}; the run was {run.state}")]
    if losses >= lose_limit(run, lease_limit):
        return [_end(tx, row, now, RequestState.DEAD, f"{reason}; lost {losses} times")]
    if losses >= SPLIT_AFTER and row.open > 1:
        return _split(tx, row, run, now, losses, f"{reason}; split into single requests")
    values = {"state": int(BlockState.RETRY), "losses": losses, "agent": "", "lease_until": 0.0}
    tx.execute(sa.update(blocks).where(blocks.c.id == row.id).values(**values))
    note_history(tx, [row.id], BlockState.RETRY, now, reason)
    tx.move(row.run, RequestState.LEASED, RequestState.QUEUED, row.open)
    ref = BlockRef(row.id, run.id, row.priority, row.open, row.target)
    return [Freed(row.id, row.agent, reason, ref)]


def _reason(row: Any, now: float) -> str:
    if row.answer_by is not None and row.answer_by < now:
        return f"agent {row.agent} holds it and does not answer"
    if row.lease_until < now:
        return f"the lease of agent {row.agent} expired"
    return f"agent {row.agent} is gone"


def _end(tx: Tx, row: Any, now: float, state: RequestState, detail: str) -> Freed:
    members = close_block(tx, row, state, now, detail)
    if state is RequestState.DEAD:
        name_fingerprint(tx, members, FailureClass.LOST, "lost with its agent too often", now)
    else:
        name_failure(tx, members, FailureClass.LOST)
    rows = _lost_attempts(row, members, now, detail)
    tx.dialect.insert_many(tx.connection, attempts, ATTEMPT_COLUMNS, rows)
    return Freed(row.id, row.agent, detail, None)


def _split(tx: Tx, row: Any, run: HeldRun, now: float, losses: int, detail: str) -> list[Freed]:
    still_open = open_members(tx.connection, row.id)
    works = [w for w in works_of(tx.connection, [row.id])[row.id] if w.id in still_open]
    contents = [Packed([work.id], msgspec.msgpack.encode([work]), row.expires_at) for work in works]
    origin = f"split off block {row.id}"
    made = new_blocks(
        tx, row.run, row.priority, contents, now, origin, losses=losses, target=row.target
    )
    values = {"state": int(BlockState.FAILED), "open": 0, "agent": ""}
    tx.execute(sa.update(blocks).where(blocks.c.id == row.id).values(**values))
    note_history(tx, [row.id], BlockState.FAILED, now, detail)
    # Each of the new blocks claims its host when it is leased.
    let_go(tx, [row.id], now)
    tx.move(row.run, RequestState.LEASED, RequestState.QUEUED, len(works))
    return [
        Freed(row.id, row.agent, detail, BlockRef(block, run.id, row.priority, 1, row.target))
        for block in made
    ]


def _lost_attempts(row: Any, members: Iterable[int], now: float, detail: str) -> list[Row]:
    """Attempt rows for requests that were lost with their agent too often."""
    return [
        (n, row.id, row.token, row.agent, now, "lost", 0, detail, 0, 0, 0, "", "", "", 0, 0)
        for n in members
    ]
