"""Creates and reads block rows, for packing, leasing and settling.

Run by centers only, inside the caller's transaction: nothing here begins or ends one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec
import sqlalchemy as sa

from skep.model.request import Work
from skep.model.states import BlockState, RequestState
from skep.store.sql.engine.database import Tx
from skep.store.sql.engine.dialect import id_list
from skep.store.sql.hosts.holds import let_go
from skep.store.sql.schema.blocks import block_bodies, block_history, blocks

_works = msgspec.msgpack.Decoder(list[Work])


class Packed(NamedTuple):
    """Requests that go into one block: their ids, and their body as agents get it."""

    ids: list[int]
    body: bytes
    #: When the first of them expires; None when none does.
    expires_at: float | None = None


def new_blocks(
    tx: Tx,
    run: int,
    priority: int,
    contents: Sequence[Packed],
    now: float,
    detail: str,
    *,
    losses: int = 0,
    target: str = "",
) -> list[int]:
    """Create READY blocks of these requests, whose rows then refer to them; returns the ids."""
    if not contents:
        return []
    common = {"run": run, "priority": priority, "losses": losses, "target": target}
    rows = [{**common, **_ready(content, now)} for content in contents]
    made = tx.dialect.insert_numbered(tx.connection, blocks, rows)
    bodies = [(block, content.body) for block, content in zip(made, contents, strict=True)]
    tx.dialect.insert_many(tx.connection, block_bodies, ("block", "body"), bodies)
    members = {block: content.ids for block, content in zip(made, contents, strict=True)}
    tx.dialect.assign(tx.connection, members)
    note_history(tx, made, BlockState.READY, now, detail)
    return made


def _ready(content: Packed, now: float) -> dict[str, Any]:
    """Columns of a block that no agent has taken yet."""
    return {
        "state": int(BlockState.READY),
        "token": 0,
        "agent": "",
        "lease_until": 0.0,
        "size": len(content.ids),
        "open": len(content.ids),
        "failed": 0,
        "collected": 0,
        "created_at": now,
        "expires_at": content.expires_at,
    }


def note_history(
    tx: Tx, block_ids: Iterable[int], state: BlockState, now: float, detail: str
) -> None:
    """Add one history entry for each block."""
    rows = [(block, int(state), now, detail) for block in block_ids]
    tx.dialect.insert_many(tx.connection, block_history, ("block", "state", "at", "detail"), rows)


def bodies_of(connection: sa.Connection, block_ids: Sequence[int]) -> dict[int, bytes]:
    """The packed requests of each block, as they are sent to agents."""
    rows = connection.exec_driver_sql(
        f"SELECT block, body FROM block_bodies WHERE block IN ({id_list(block_ids)})"  # noqa: S608
    )
    return {block: bytes(body) for block, body in rows}


def works_of(connection: sa.Connection, block_ids: Sequence[int]) -> dict[int, list[Work]]:
    """The requests of each block, ended ones too."""
    return {block: _works.decode(body) for block, body in bodies_of(connection, block_ids).items()}


class _Id(msgspec.Struct, array_like=True):
    """The first field of `Work`; skipping the others is several times faster."""

    id: int


_ids = msgspec.msgpack.Decoder(list[_Id])


def ids_in(body: bytes) -> list[int]:
    """The ids of the requests in a block's body."""
    return [work.id for work in _ids.decode(body)]


def members_of(connection: sa.Connection, block_ids: Sequence[int]) -> dict[int, list[int]]:
    """The ids of the requests of each block, ended ones too."""
    found = bodies_of(connection, block_ids)
    return {block: ids_in(body) for block, body in found.items()}


def open_members(connection: sa.Connection, block: int) -> set[int]:
    """Requests of a block that have not ended and still belong to it."""
    members = members_of(connection, [block]).get(block, [])
    if not members:
        return set()
    rows = connection.exec_driver_sql(
        f"SELECT id FROM requests WHERE id IN ({id_list(members)})"  # noqa: S608 - integers
        f" AND block = {block:d} AND state = {RequestState.QUEUED:d}"
    )
    return set(rows.scalars())


def close_block(tx: Tx, row: Any, state: RequestState, now: float, detail: str) -> set[int]:
    """Fail a leased block; its open requests end as `state`."""
    members = open_members(tx.connection, row.id)
    end_requests(tx, members, state)
    # No agent holds it any more: a late report is stale, not a duplicate.
    values = {"state": int(BlockState.FAILED), "open": 0, "failed": row.failed + len(members)}
    tx.execute(sa.update(blocks).where(blocks.c.id == row.id).values(agent="", **values))
    note_history(tx, [row.id], BlockState.FAILED, now, detail)
    tx.move(row.run, RequestState.LEASED, state, len(members))
    let_go(tx, [row.id], now)
    return members


def end_requests(tx: Tx, ids: Iterable[int], state: RequestState) -> int:
    """Requests that are in a block end as `state`; returns how many."""
    numbers = id_list(ids)
    if not numbers:
        return 0
    return tx.sql(
        f"UPDATE requests SET state = {state:d}"  # noqa: S608 - integers
        f" WHERE id IN ({numbers}) AND state = {RequestState.QUEUED:d}"
    ).rowcount
