"""Expires requests before an agent takes their block. Run by centers only.

Most requests wait in a block, not outside of one, so expiry is checked at the lease: inside its
transaction, so that no agent ever gets an expired request.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from skep.model.states import BlockState, RequestState
from skep.store.sql.blocks.rows import end_requests, ids_in, note_history
from skep.store.sql.engine.database import Tx
from skep.store.sql.engine.dialect import id_list
from skep.store.sql.engine.predicates import stored, written_out
from skep.store.sql.hosts.holds import let_go
from skep.store.sql.schema.blocks import blocks
from skep.store.sql.schema.requests import requests


def expire_leased(
    tx: Tx, rows: Mapping[int, Any], bodies: Mapping[int, bytes], now: float
) -> Counter[int]:
    """End expired requests in these claimable blocks, which are locked; returns how many, by
    block.

    A block with no requests left ends with its last request.
    """
    late = _late_in(tx, bodies, now)
    for block, ids in late.items():
        end_requests(tx, ids, RequestState.EXPIRED)
        tx.move(rows[block].run, RequestState.QUEUED, RequestState.EXPIRED, len(ids))
        _shrink(tx, rows[block], len(ids), now)
    return Counter({block: len(ids) for block, ids in late.items()})


def _late_in(tx: Tx, bodies: Mapping[int, bytes], now: float) -> dict[int, list[int]]:
    members = id_list(number for body in bodies.values() for number in ids_in(body))
    query = (
        sa.select(requests.c.id, requests.c.block)
        .where(written_out(f"requests.id IN ({members})"), stored(RequestState.QUEUED))
        .where(requests.c.expires_at <= now)
    )
    found = tx.execute(query)
    late: dict[int, list[int]] = {}
    for row in found:
        # A request that was attempted before may be in another block now.
        if row.block in bodies:
            late.setdefault(row.block, []).append(row.id)
    return late


def _shrink(tx: Tx, row: Any, count: int, now: float) -> None:
    left = row.open - count
    values = {"open": left, "failed": row.failed + count}
    if not left:
        values["state"] = int(BlockState.FAILED)
        note_history(tx, [row.id], BlockState.FAILED, now, "its requests expired")
        let_go(tx, [row.id], now)
    tx.execute(sa.update(blocks).where(blocks.c.id == row.id).values(**values))
