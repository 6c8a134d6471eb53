"""Cancels open requests: all of a run that was cancelled or finished, or a list of them.

Run by centers only, inside one transaction. Requests that an agent holds are left alone: its
report, or the end of its lease, decides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from skep.model.failures.dead_requests import Acted
from skep.model.states import BlockState, RequestState
from skep.store.sql.blocks.rows import end_requests, members_of, note_history
from skep.store.sql.engine.database import Tx
from skep.store.sql.engine.dialect import id_list
from skep.store.sql.engine.predicates import CLAIMABLE_BLOCKS, in_list, stored
from skep.store.sql.hosts.holds import let_go
from skep.store.sql.schema.blocks import blocks
from skep.store.sql.schema.requests import requests

#: Blocks that one statement of a cancellation covers; SQLite bounds a statement's length.
CANCEL_BLOCKS = 100
_OPEN = (RequestState.WAITING, RequestState.QUEUED, RequestState.DELAYED)


def cancel_open(tx: Tx, run: int, now: float, detail: str) -> int:
    """Everything of a run that no agent holds becomes CANCELLED; returns how many."""
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
    """Every request of a run that is in one state goes to another, by one statement."""
    of_run = sa.and_(requests.c.run == run, stored(before))
    change = sa.update(requests).where(of_run).values(state=int(to), **values)
    count = int(tx.execute(change).rowcount)
    tx.move(run, before, to, count)
    return count


def cancel_some(tx: Tx, ids: Sequence[int], now: float) -> Acted:
    """Cancel those of `ids` that are open and not leased."""
    free, leased = cancel_free(tx, ids, now)
    return Acted(len(free), len(leased))


def cancel_free(tx: Tx, ids: Sequence[int], now: float) -> tuple[Sequence[Any], Sequence[Any]]:
    """Cancel those of `ids` that are open and not leased; returns these rows, and those that are
    leased."""
    states = id_list(_OPEN)
    wanted = f"id IN ({id_list(ids)}) AND state IN ({states})"
    found = tx.sql(f"SELECT DISTINCT block FROM requests WHERE {wanted}")  # noqa: S608 - integers
    # Blocks before requests: the same lock order as everywhere.
    claimable = _locked(tx, [block for block in found.scalars() if block is not None])
    query = sa.select(requests.c.id, requests.c.run, requests.c.state, requests.c.block)
    rows = tx.execute(query.where(sa.text(wanted)).order_by(requests.c.id).with_for_update()).all()
    free = [row for row in rows if _is_free(row, claimable)]
    if free:
        tx.sql(
            f"UPDATE requests SET state = {RequestState.CANCELLED:d}"  # noqa: S608 - integers
            f" WHERE id IN ({id_list(row.id for row in free)})"
        )
    for (run, state), count in Counter((row.run, row.state) for row in free).items():
        tx.move(run, state, RequestState.CANCELLED, count)
    queued = Counter(row.block for row in free if row.state == RequestState.QUEUED)
    for block, count in queued.items():
        _shrink(tx, block, claimable[block], count, now)
    return free, [row for row in rows if not _is_free(row, claimable)]


def _is_free(row: Any, claimable: Mapping[int, object]) -> bool:
    return row.state != RequestState.QUEUED or row.block in claimable


def _locked(tx: Tx, block_ids: list[int]) -> dict[int, tuple[int, int]]:
    """Blocks that are not leased: id -> (open, failed)."""
    if not block_ids:
        return {}
    wanted = in_list(blocks.c.id, block_ids)
    query = sa.select(blocks.c.id, blocks.c.open, blocks.c.failed).where(wanted, CLAIMABLE_BLOCKS)
    rows = tx.execute(query.order_by(blocks.c.id).with_for_update())
    return {row.id: (row.open, row.failed) for row in rows}


def _shrink(tx: Tx, block: int, counts: tuple[int, int], fewer: int, now: float) -> None:
    left = counts[0] - fewer
    values = {"open": left, "failed": counts[1] + fewer}
    if not left:
        values["state"] = int(BlockState.FAILED)
        note_history(tx, [block], BlockState.FAILED, now, "its requests were cancelled")
        let_go(tx, [block], now)
    tx.execute(sa.update(blocks).where(blocks.c.id == block).values(**values))
