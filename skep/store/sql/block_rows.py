"""Making and reading block rows: what packing, leasing and settling share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
import sqlalchemy as sa

from skep.model.request import Work
from skep.model.states import BlockState, RequestState
from skep.store.sql.database import Tx
from skep.store.sql.dialect import id_list
from skep.store.sql.tables import block_bodies, block_history, blocks

_works = msgspec.msgpack.Decoder(list[Work])


def new_block(
    tx: Tx,
    run: int,
    priority: int,
    ids: Sequence[int],
    body: bytes,
    now: float,
    detail: str,
    losses: int = 0,
) -> int:
    """A READY block of these requests, whose rows now point at it; returns its id."""
    result = tx.execute(
        sa.insert(blocks).values(
            run=run,
            priority=priority,
            state=BlockState.READY,
            token=0,
            losses=losses,
            agent="",
            target="",
            lease_until=0.0,
            size=len(ids),
            open=len(ids),
            failed=0,
            collected=0,
            created_at=now,
        )
    )
    block = int(result.inserted_primary_key[0])  # type: ignore[index]  # an autoincrement key
    tx.dialect.insert_many(tx.connection, block_bodies, ("block", "body"), [(block, body)])
    tx.sql(
        f"UPDATE requests SET state = {RequestState.QUEUED:d}, block = {block:d}"  # noqa: S608
        f" WHERE id IN ({id_list(ids)})"
    )
    note_history(tx, [block], BlockState.READY, now, detail)
    return block


def note_history(
    tx: Tx, block_ids: Iterable[int], state: BlockState, now: float, detail: str
) -> None:
    """One line for each block."""
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


def members_of(connection: sa.Connection, block_ids: Sequence[int]) -> dict[int, list[int]]:
    """The ids of the requests of each block, ended ones too."""
    found = works_of(connection, block_ids)
    return {block: [work.id for work in works] for block, works in found.items()}


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
