"""Packs waiting requests into blocks. Run by centers only, inside one transaction.

A block is bounded by its number of requests and by its bytes: every engine and every
agent must be able to hold one whole. The rows come locked, in the order that their run asks
for: two centers that pack at once never get the same one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import sqlalchemy as sa

from skep.model.block import BlockRef
from skep.model.hosts.politeness import Politeness
from skep.model.request import Work
from skep.model.states import RequestState
from skep.store.ports.placement import Placing
from skep.store.ports.requests import PackPlan
from skep.store.sql.blocks.pack_placement import by_target
from skep.store.sql.blocks.rows import Packed, new_blocks
from skep.store.sql.engine.database import Tx
from skep.store.sql.engine.dialect import id_list
from skep.store.sql.engine.predicates import FAILED_BEFORE, in_list, stored
from skep.store.sql.hosts.holds import give_to
from skep.store.sql.hosts.host_batches import BLOCK_BYTES, HostBatch, HostBatches, take_host_batches
from skep.store.sql.runs.runs import HeldRun, hold_run
from skep.store.sql.schema.requests import requests

#: Maximum bytes of one plan, so that large requests do not fill the center's memory.
PLAN_BYTES = 32 * 2**20
#: Oldest requests among which those of one host are put together. A bound, so that a backlog
#: of millions costs no more than one of thousands, and no host waits for its letter.
HOST_WINDOW = 5000

_SIZE = sa.func.length(requests.c.arguments).label("bytes")
_ROWS = sa.select(requests.c.id, requests.c.uri, requests.c.expires_at, _SIZE).add_columns(
    requests.c.host, requests.c.failures, requests.c.not_before
)


class _Arguments(msgspec.Struct, array_like=True):
    method: str
    headers: dict[str, str]
    body: bytes
    meta: dict[str, Any]
    session: str = ""


_arguments = msgspec.msgpack.Decoder(_Arguments)


def pack_one(
    tx: Tx,
    plan: PackPlan,
    now: float,
    politeness: Politeness | None,
    placing: Placing | None = None,
) -> tuple[list[BlockRef], int]:
    """Pack the oldest waiting requests of a plan into READY blocks; none if its run is not
    running.

    Also returns how many were parked, because their host must not be contacted now or their
    agent is not available.
    """
    run = hold_run(tx, plan.run)
    if not run.running:
        return [], 0
    found = list(_within(PLAN_BYTES, _waiting_of(tx, run.no, plan)))
    groups, parked = by_target(tx, run, found, placing, now)
    refs: list[BlockRef] = []
    for target, rows in groups.items():
        # In sequence: a host that the first group claims is not available to the next.
        made, waiting = _pack_rows(tx, run, plan, rows, target, now, politeness)
        refs += made
        parked += waiting
    return refs, parked


def _waiting_of(tx: Tx, run: int, plan: PackPlan) -> list[Any]:
    """At most `plan.limit` rows, locked."""
    if plan.order == "priority":
        query = _of_plan(_ROWS, run, plan).limit(plan.limit)
        return list(tx.execute(query.with_for_update(skip_locked=True)))
    return _host_by_host(tx, run, plan)


def _of_plan(query: sa.Select[Any], run: int, plan: PackPlan) -> sa.Select[Any]:
    query = query.where(requests.c.run == run, requests.c.priority == plan.priority)
    query = query.where(stored(RequestState.WAITING)).order_by(requests.c.id)
    return query.where(FAILED_BEFORE) if plan.failed_only else query


def _host_by_host(tx: Tx, run: int, plan: PackPlan) -> list[Any]:
    """The host whose request is oldest comes first, with all that it has in the window."""
    window = _of_plan(sa.select(requests.c.id, requests.c.host), run, plan)
    hosts: dict[str, list[int]] = {}
    for row in tx.execute(window.limit(max(HOST_WINDOW, plan.limit))):
        hosts.setdefault(row.host, []).append(row.id)
    chosen = [number for numbers in hosts.values() for number in numbers][: plan.limit]
    if not chosen:
        return []
    # Looked at without a lock: what another center took meanwhile is left out.
    query = _ROWS.where(in_list(requests.c.id, chosen))
    query = query.where(stored(RequestState.WAITING)).order_by(requests.c.id)
    rows = {row.id: row for row in tx.execute(query.with_for_update(skip_locked=True))}
    return [rows[number] for number in chosen if number in rows]


def _pack_rows(
    tx: Tx,
    run: HeldRun,
    plan: PackPlan,
    found: list[Any],
    target: str,
    now: float,
    politeness: Politeness | None,
) -> tuple[list[BlockRef], int]:
    """Packs requests that are all for one target."""
    seats = HostBatches(found, [], 0)
    if politeness is not None:
        seats = take_host_batches(tx, run, plan, found, now, politeness)
    tables = [HostBatch(rows, []) for rows in _chunks(seats.free, plan.block_size)] + seats.tables
    arguments = _arguments_of(tx, [row.id for table in tables for row in table.rows if row.bytes])
    contents = [_packed(table.rows, arguments) for table in tables]
    made = new_blocks(tx, run.no, plan.priority, contents, now, "packed", target=target)
    give_to(tx, {block: table.hosts for block, table in zip(made, tables, strict=True)})
    tx.move(run.no, RequestState.WAITING, RequestState.QUEUED, len(found) - seats.parked)
    refs = [
        BlockRef(block, plan.run, plan.priority, len(content.ids), target)
        for block, content in zip(made, contents, strict=True)
    ]
    return refs, seats.parked


def _within(limit: int, rows: list[Any]) -> Iterator[Any]:
    """The first rows until the limit is exceeded; at least one."""
    total = 0
    for row in rows:
        if total >= limit:
            return
        total += row.bytes
        yield row


def _arguments_of(tx: Tx, ids: list[int]) -> dict[int, bytes]:
    if not ids:
        return {}
    rows = tx.sql(
        f"SELECT id, arguments FROM requests WHERE id IN ({id_list(ids)})"  # noqa: S608 - integers
    )
    return {row.id: bytes(row.arguments) for row in rows}


def _chunks(rows: list[Any], size: int) -> Iterator[list[Any]]:
    chunk: list[Any] = []
    total = 0
    for row in rows:
        if chunk and (len(chunk) == size or total + row.bytes > BLOCK_BYTES):
            yield chunk
            chunk, total = [], 0
        chunk.append(row)
        total += row.bytes
    if chunk:
        yield chunk


def _packed(chunk: list[Any], arguments: dict[int, bytes]) -> Packed:
    works = [_work(row, arguments.get(row.id, b"")) for row in chunk]
    ends = [row.expires_at for row in chunk if row.expires_at is not None]
    body = msgspec.msgpack.encode(works)
    return Packed([row.id for row in chunk], body, min(ends, default=None))


def _work(row: Any, arguments: bytes) -> Work:
    if not arguments:
        return Work(row.id, row.uri)
    found = _arguments.decode(arguments)
    return Work(row.id, row.uri, found.method, found.headers, found.body, found.meta, found.session)
