"""Taking blocks back from agents that died or fell silent. Run by centers only.

A lost lease is no failed download: the block is ready again at once and keeps its
requests' retries. A block that is lost again and again probably holds a request that
kills agents, so it is first cut into single requests and, in the end, given up.
"""

from __future__ import annotations

from typing import Any

import msgspec
import sqlalchemy as sa

from skep.model.block import BlockRef
from skep.model.request import Work
from skep.model.states import BlockState, RequestState, RunState
from skep.store.ports import Freed
from skep.store.sql.block_rows import new_block, note_history, open_members, works_of
from skep.store.sql.database import Tx
from skep.store.sql.dialect import id_list
from skep.store.sql.settle import ATTEMPT_COLUMNS, lost_attempts
from skep.store.sql.tables import attempts, blocks

#: After so many losses a block is cut into single requests, to find the one at fault.
SPLIT_AFTER = 3


def take_back(tx: Tx, row: Any, now: float, lease_limit: int) -> list[Freed]:
    """One overdue block row (with `run_id` and `run_state`); what became of it."""
    reason = _reason(row, now)
    losses = row.losses + 1
    if row.run_state == RunState.CANCELLED:
        return [_end(tx, row, now, RequestState.CANCELLED, f"{reason}; the run was cancelled")]
    if losses >= lease_limit:
        return [_end(tx, row, now, RequestState.DEAD, f"{reason}; lost {losses} times")]
    if losses >= SPLIT_AFTER and row.open > 1:
        return _split(tx, row, now, losses, f"{reason}; cut into single requests")
    _set(tx, row.id, state=BlockState.RETRY, losses=losses, agent="", lease_until=0.0)
    note_history(tx, [row.id], BlockState.RETRY, now, reason)
    tx.move(row.run, RequestState.LEASED, RequestState.QUEUED, row.open)
    ref = BlockRef(row.id, row.run_id, row.priority, row.open, row.target)
    return [Freed(row.id, row.agent, reason, ref)]


def _reason(row: Any, now: float) -> str:
    if row.lease_until < now:
        return f"the lease of {row.agent} ran out"
    return f"agent {row.agent} is gone"


def _end(tx: Tx, row: Any, now: float, state: RequestState, detail: str) -> Freed:
    members = open_members(tx.connection, row.id)
    tx.sql(
        f"UPDATE requests SET state = {state:d} WHERE id IN ({id_list(members)})"  # noqa: S608
    )
    rows = lost_attempts(row, members, now, detail)
    tx.dialect.insert_many(tx.connection, attempts, ATTEMPT_COLUMNS, rows)
    _set(tx, row.id, state=BlockState.FAILED, open=0, failed=row.failed + len(members))
    note_history(tx, [row.id], BlockState.FAILED, now, detail)
    tx.move(row.run, RequestState.LEASED, state, len(members))
    return Freed(row.id, row.agent, detail, None)


def _split(tx: Tx, row: Any, now: float, losses: int, detail: str) -> list[Freed]:
    still_open = open_members(tx.connection, row.id)
    works = [w for w in works_of(tx.connection, [row.id])[row.id] if w.id in still_open]
    freed = [Freed(row.id, row.agent, detail, _alone(tx, row, work, now, losses)) for work in works]
    _set(tx, row.id, state=BlockState.FAILED, open=0)
    note_history(tx, [row.id], BlockState.FAILED, now, detail)
    tx.move(row.run, RequestState.LEASED, RequestState.QUEUED, len(works))
    return freed


def _alone(tx: Tx, row: Any, work: Work, now: float, losses: int) -> BlockRef:
    body = msgspec.msgpack.encode([work])
    detail = f"cut out of block {row.id}"
    block = new_block(tx, row.run, row.priority, [work.id], body, now, detail, losses)
    return BlockRef(block, row.run_id, row.priority, 1, row.target)


def _set(tx: Tx, block: int, **values: Any) -> None:
    tx.execute(sa.update(blocks).where(blocks.c.id == block).values(**values))
