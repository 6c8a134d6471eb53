"""Requests: accepted, packed, woken, expired. Answers `Requests`; run by centers only.

Nothing here ever deletes a request row: a request ends by a change of state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from skep.errors import NotFound
from skep.model.attempt import Attempt
from skep.model.block import BlockRef
from skep.model.lane import HIGHEST, LOWEST
from skep.model.request import Work
from skep.model.run import RunSettings
from skep.model.states import BlockState, RequestState, RunState
from skep.store.ports import Accepted, Backlog, PackPlan, RequestRow, RequestView
from skep.store.sql.block_rows import members_of, new_block, note_history
from skep.store.sql.conditions import CLAIMABLE_BLOCKS, MORTAL, stored
from skep.store.sql.database import ACCEPTED, Database, Tx
from skep.store.sql.dialect import id_list
from skep.store.sql.runs import SqlRuns
from skep.store.sql.tables import attempts, blocks, requests, runs, tallies

_COLUMNS = (
    "run",
    "fingerprint",
    "uri",
    "host",
    "priority",
    "arguments",
    "state",
    "failures",
    "not_before",
    "expires_at",
    "created_at",
)
_settings = msgspec.msgpack.Decoder(RunSettings)
_CANCELLED = RequestState.CANCELLED
_arguments = msgspec.msgpack.Decoder(tuple[str, dict[str, str], bytes, dict[str, Any]])


class SqlRequests:
    """Rows of `requests`."""

    def __init__(self, database: Database, runs_: SqlRuns) -> None:
        self._database = database
        self._runs = runs_

    async def accept(self, run_id: str, rows: Sequence[RequestRow], now: float) -> Accepted:
        def work(tx: Tx) -> Accepted:
            run = self._runs.accepting(tx.connection, run_id)
            values = [_row(run, row, now) for row in rows]
            new = tx.dialect.insert_new(tx.connection, requests, _COLUMNS, values)
            tx.tally(run, ACCEPTED, new)
            tx.tally(run, RequestState.WAITING, new)
            return Accepted(new, len(values) - new)

        return await self._database.write(work)

    async def backlog(self) -> list[Backlog]:
        return await self._database.read(_backlog)

    async def pack(self, plans: Sequence[PackPlan], now: float) -> list[BlockRef]:
        def work(tx: Tx) -> list[BlockRef]:
            refs: list[BlockRef] = []
            for plan in plans:
                refs += self._pack_one(tx, plan, now)
            return refs

        return await self._database.write(work)

    def _pack_one(self, tx: Tx, plan: PackPlan, now: float) -> list[BlockRef]:
        run = self._runs.number(tx.connection, plan.run)
        found = _oldest_waiting(tx, run, plan)
        size = plan.block_size
        chunks = [found[start : start + size] for start in range(0, len(found), size)]
        refs = [_pack_chunk(tx, run, plan, chunk, now) for chunk in chunks]
        tx.move(run, RequestState.WAITING, RequestState.QUEUED, len(found))
        return refs

    async def wake(self, now: float, limit: int) -> int:
        due = sa.and_(stored(RequestState.DELAYED), requests.c.not_before <= now)
        return await self._database.write(lambda tx: _change(tx, due, limit, RequestState.WAITING))

    async def expire(self, now: float, limit: int) -> int:
        over = sa.and_(MORTAL, requests.c.expires_at <= now)
        return await self._database.write(lambda tx: _change(tx, over, limit, RequestState.EXPIRED))

    async def cancel(self, run_id: str, now: float) -> int:
        return await self._database.write(lambda tx: self._cancel(tx, run_id, now))

    def _cancel(self, tx: Tx, run_id: str, now: float) -> int:
        run = self._runs.number(tx.connection, run_id)
        of_run = requests.c.run == run
        count = _change(tx, sa.and_(stored(RequestState.WAITING), of_run), None, _CANCELLED)
        count += _change(tx, sa.and_(stored(RequestState.DELAYED), of_run), None, _CANCELLED)
        query = sa.select(blocks.c.id).where(blocks.c.run == run, CLAIMABLE_BLOCKS)
        ids = list(tx.execute(query.with_for_update()).scalars())
        if not ids:
            return count
        members = [number for ids_ in members_of(tx.connection, ids).values() for number in ids_]
        changed = tx.sql(
            f"UPDATE requests SET state = {RequestState.CANCELLED:d}"  # noqa: S608 - integers
            f" WHERE id IN ({id_list(members)}) AND state = {RequestState.QUEUED:d}"
        ).rowcount
        tx.execute(
            sa.update(blocks).where(blocks.c.id.in_(ids)).values(state=BlockState.FAILED, open=0)
        )
        note_history(tx, ids, BlockState.FAILED, now, "the run was cancelled")
        tx.move(run, RequestState.QUEUED, RequestState.CANCELLED, changed)
        return count + changed

    async def revive(self, run_id: str) -> int:
        def work(tx: Tx) -> int:
            run = self._runs.number(tx.connection, run_id)
            dead = sa.and_(requests.c.run == run, stored(RequestState.DEAD))
            return _change(tx, dead, None, RequestState.WAITING, failures=0, block=None)

        return await self._database.write(work)

    async def get(self, request_id: int) -> RequestView:
        query = (
            sa.select(requests, runs.c.id.label("run_id"), blocks.c.state.label("block_state"))
            .join(runs, runs.c.no == requests.c.run)
            .outerjoin(blocks, blocks.c.id == requests.c.block)
            .where(requests.c.id == request_id)
        )
        row = await self._database.read(lambda c: c.execute(query).first())
        if row is None:
            raise NotFound(f"there is no request {request_id}")
        return _view(row)

    async def retry_facts(self, request_ids: Sequence[int]) -> dict[int, tuple[int, int]]:
        if not request_ids:
            return {}
        query = (
            sa.select(requests.c.id, requests.c.failures, runs.c.settings)
            .join(runs, runs.c.no == requests.c.run)
            .where(sa.literal_column(f"requests.id IN ({id_list(request_ids)})"))
        )
        rows = await self._database.read(lambda c: c.execute(query).all())
        return {row.id: (row.failures, _settings.decode(row.settings).retries) for row in rows}

    async def attempts(self, request_id: int) -> list[Attempt]:
        query = sa.select(attempts).where(attempts.c.request == request_id)
        query = query.order_by(attempts.c.at, attempts.c.token)
        rows = await self._database.read(lambda c: c.execute(query).mappings().all())
        return [Attempt(**row) for row in rows]


def _row(run: int, row: RequestRow, now: float) -> tuple[Any, ...]:
    return (
        run,
        row.fingerprint,
        row.uri,
        row.host,
        row.priority,
        row.arguments,
        0,  # RequestState.WAITING, spelled out: this runs once per accepted request
        0,
        0.0,
        row.expires_at,
        now,
    )


def _backlog(connection: sa.Connection) -> list[Backlog]:
    priority = sa.union_all(
        *(sa.select(sa.literal(p, sa.Integer).label("p")) for p in range(HIGHEST, LOWEST + 1))
    ).subquery("priorities")
    there = (
        sa.select(sa.literal(1))
        .where(requests.c.run == runs.c.no)
        .where(stored(RequestState.WAITING))
        .where(requests.c.priority == priority.c.p)
        .exists()
    )
    query = (
        sa.select(runs.c.id, runs.c.settings, priority.c.p, tallies.c.n)
        .join(tallies, tallies.c.run == runs.c.no)
        .join(priority, sa.true())
        .where(tallies.c.state == RequestState.WAITING, tallies.c.n > 0)
        .where(runs.c.state == RunState.RUNNING, there)
        .order_by(priority.c.p, runs.c.no)
    )
    return [
        Backlog(row.id, row.p, row.n, _settings.decode(row.settings).block_size)
        for row in connection.execute(query)
    ]


def _oldest_waiting(tx: Tx, run: int, plan: PackPlan) -> list[Any]:
    query = (
        sa.select(requests.c.id, requests.c.uri, requests.c.arguments)
        .where(requests.c.run == run, requests.c.priority == plan.priority)
        .where(stored(RequestState.WAITING))
        .order_by(requests.c.id)
        .limit(plan.limit)
        .with_for_update(skip_locked=True)
    )
    return list(tx.execute(query))


def _pack_chunk(tx: Tx, run: int, plan: PackPlan, chunk: list[Any], now: float) -> BlockRef:
    body = msgspec.msgpack.encode([_work(row) for row in chunk])
    ids = [row.id for row in chunk]
    block = new_block(tx, run, plan.priority, ids, body, now, "packed")
    return BlockRef(block, plan.run, plan.priority, len(ids))


def _work(row: Any) -> Work:
    if not row.arguments:
        return Work(row.id, row.uri)
    return Work(row.id, row.uri, *_arguments.decode(row.arguments))


def _change(tx: Tx, condition: Any, limit: int | None, to: RequestState, **values: Any) -> int:
    """Move rows that fit `condition` to another state, with their tallies."""
    query = sa.select(requests.c.id, requests.c.run, requests.c.state).where(condition)
    query = query.with_for_update(skip_locked=True)
    rows = tx.execute(query.limit(limit) if limit else query).all()
    if not rows:
        return 0
    tx.execute(
        sa.update(requests)
        .where(sa.literal_column(f"id IN ({id_list(row.id for row in rows)})"))
        .values(state=to, **values)
    )
    for row in rows:
        tx.move(row.run, row.state, to, 1)
    return len(rows)


def _view(row: Any) -> RequestView:
    state = RequestState(row.state)
    if state is RequestState.QUEUED and row.block_state == BlockState.USING:
        state = RequestState.LEASED
    return RequestView(
        row.id,
        row.run_id,
        row.uri,
        row.priority,
        state,
        row.failures,
        row.block,
        row.created_at,
        row.not_before,
    )
