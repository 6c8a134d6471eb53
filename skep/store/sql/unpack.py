"""Blocks of runs that rest, taken apart where others wait for their hosts. Centers only.

A paused run may rest for weeks; a block of it that nobody can lease must not keep a host
from the other runs for so long.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from skep.model.states import BlockState, RequestState, RunState
from skep.store.sql.block_rows import note_history, open_members
from skep.store.sql.conditions import CLAIMABLE_BLOCKS
from skep.store.sql.database import Tx
from skep.store.sql.dialect import id_list
from skep.store.sql.holds import let_go
from skep.store.sql.tables import blocks, runs, site_holds

#: These go on, or their requests end with them; all others rest.
_NOT_RESTING = (str(RunState.RUNNING), str(RunState.FINISHED), str(RunState.CANCELLED))


def unpack_resting(tx: Tx, now: float, limit: int) -> int:
    """Claimable blocks that hold hosts for runs that rest; returns how many there were."""
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
    wanted: sa.ColumnElement[bool] = sa.literal_column(f"blocks.id IN ({id_list(found)})")
    locked = sa.select(blocks).where(wanted, CLAIMABLE_BLOCKS).order_by(blocks.c.id)
    rows = list(tx.execute(locked.with_for_update(skip_locked=True)))
    for row in rows:
        _unpack(tx, row, now)
    return len(rows)


def _unpack(tx: Tx, row: Any, now: float) -> None:
    members = open_members(tx.connection, row.id)
    if members:
        tx.sql(
            f"UPDATE requests SET state = {RequestState.DELAYED:d}, block = NULL,"  # noqa: S608
            f" not_before = {now!r} WHERE id IN ({id_list(members)})"
        )
    tx.move(row.run, RequestState.QUEUED, RequestState.DELAYED, len(members))
    ended = {"state": int(BlockState.FAILED), "open": 0}
    tx.execute(sa.update(blocks).where(blocks.c.id == row.id).values(**ended))
    note_history(tx, [row.id], BlockState.FAILED, now, "unpacked: its run rests, its hosts do not")
    let_go(tx, [row.id], now)
