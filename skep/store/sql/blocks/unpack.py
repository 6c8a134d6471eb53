"""Unpacks blocks that no agent can lease: their requests wait again. Centers only.

A run can be paused for weeks; its blocks must not keep a host from other runs for so long. An
agent can be gone for good; a block for it alone must not fill a lane.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from skep.model.states import BlockState, RequestState, RunState
from skep.store.sql.blocks.rows import note_history, open_members
from skep.store.sql.engine.database import Tx
from skep.store.sql.engine.dialect import id_list
from skep.store.sql.engine.predicates import CLAIMABLE_BLOCKS, in_list
from skep.store.sql.hosts.holds import let_go
from skep.store.sql.schema.blocks import blocks
from skep.store.sql.schema.hosts import site_holds
from skep.store.sql.schema.runs import runs

#: Runs in these states continue, or end their requests; all others are at rest.
_NOT_RESTING = (str(RunState.RUNNING), str(RunState.FINISHED), str(RunState.CANCELLED))


def unpack_resting(tx: Tx, now: float, limit: int) -> int:
    """Unpack claimable blocks that hold hosts for runs at rest; returns how many."""
    query = (
        sa.select(blocks.c.id)
        .join(site_holds, site_holds.c.block == blocks.c.id)
        .join(runs, runs.c.no == blocks.c.run)
        .where(CLAIMABLE_BLOCKS, runs.c.state.not_in(_NOT_RESTING))
        .distinct()
        .limit(limit)
    )
    found = list(tx.execute(query).scalars())
    if not found:
        return 0
    wanted = in_list(blocks.c.id, found)
    locked = sa.select(blocks).where(wanted, CLAIMABLE_BLOCKS).order_by(blocks.c.id)
    rows = list(tx.execute(locked.with_for_update(skip_locked=True)))
    for row in rows:
        _unpack(tx, row, now, "its run is not running, and other runs need its hosts")
    return len(rows)


def unpack_targets(tx: Tx, targets: Sequence[str], now: float, limit: int) -> list[int]:
    """Unpack claimable blocks for agents that cannot take them; returns the blocks."""
    locked = sa.select(blocks).where(CLAIMABLE_BLOCKS, blocks.c.target.in_(targets))
    locked = locked.order_by(blocks.c.id).limit(limit).with_for_update(skip_locked=True)
    rows = list(tx.execute(locked))
    for row in rows:
        _unpack(tx, row, now, f"no agent can take work for {row.target}")
    return [row.id for row in rows]


def _unpack(tx: Tx, row: Any, now: float, why: str) -> None:
    members = open_members(tx.connection, row.id)
    if members:
        tx.sql(
            f"UPDATE requests SET state = {RequestState.DELAYED:d}, block = NULL,"  # noqa: S608
            f" not_before = {now!r} WHERE id IN ({id_list(members)})"
        )
    tx.move(row.run, RequestState.QUEUED, RequestState.DELAYED, len(members))
    ended = {"state": int(BlockState.FAILED), "open": 0}
    tx.execute(sa.update(blocks).where(blocks.c.id == row.id).values(**ended))
    note_history(tx, [row.id], BlockState.FAILED, now, f"unpacked: {why}")
    let_go(tx, [row.id], now)
