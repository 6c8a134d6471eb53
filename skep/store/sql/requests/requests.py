"""Accepts, packs, wakes and expires requests. Implements `Requests`; run by centers only.

This module never deletes a request row: a request ends by a change of state. `delete_ended`
deletes rows of requests that ended long ago.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from skep.errors import Conflict
from skep.model.attempt import Attempt
from skep.model.hosts.politeness import Politeness
from skep.model.people.audit import AuditRow
from skep.model.request import Accepted
from skep.model.run import RunSettings
from skep.model.states import BlockState, RequestState
from skep.model.unknown_objects import unknown_request
from skep.store.ports.blocks import RetryFacts
from skep.store.ports.placement import Placing
from skep.store.ports.requests import Backlog, Packing, PackPlan, RequestRow, RequestView
from skep.store.sql.blocks.pack import pack_one
from skep.store.sql.engine.database import ACCEPTED, Database, Tx
from skep.store.sql.engine.predicates import MORTAL, in_list, stored
from skep.store.sql.engine.row_inserts import Row
from skep.store.sql.hosts.robots_probes import forget_run_probes
from skep.store.sql.people.audit import insert_rows
from skep.store.sql.requests.backlog import read_backlog
from skep.store.sql.requests.cancel import cancel_open, change_all
from skep.store.sql.requests.chains import NOWHERE, origins
from skep.store.sql.runs.runs import HeldRun, hold_run
from skep.store.sql.schema.blocks import blocks
from skep.store.sql.schema.requests import attempts, requests
from skep.store.sql.schema.runs import runs

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
#: Rows of a batch that are looked up first, and maximum rows of one lookup.
PROBES, LOOKUP = 8, 500
_settings = msgspec.msgpack.Decoder(RunSettings)


class SqlRequests:
    """Rows of `requests`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def accept(
        self,
        run_id: str,
        rows: Sequence[RequestRow],
        now: float,
        audit: AuditRow | None = None,
    ) -> Accepted:
        def work(tx: Tx) -> Accepted:
            run = hold_run(tx, run_id)
            new = _without_known(tx, run.no, rows)
            accepted = accept_rows(tx, run, new, now)
            if audit is not None:
                insert_rows(tx, [audit])
            return Accepted(accepted.new, len(rows) - accepted.new)

        return await self._database.write(work)

    async def backlog(self, *, failed_only: bool = False) -> list[Backlog]:
        dialect = self._database.dialect
        return await self._database.read(
            lambda c: read_backlog(c, dialect, failed_only=failed_only)
        )

    async def pack(
        self,
        plans: Sequence[PackPlan],
        now: float,
        politeness: Politeness | None = None,
        placings: Mapping[str, Placing] | None = None,
    ) -> Packing:
        of = placings or {}

        def work(tx: Tx) -> Packing:
            done = [pack_one(tx, plan, now, politeness, of.get(plan.run)) for plan in plans]
            blocks = [ref for refs, _ in done for ref in refs]
            return Packing(blocks, sum(parked for _, parked in done))

        return await self._database.write(work)

    async def wake(self, now: float, limit: int) -> int:
        due = sa.and_(stored(RequestState.DELAYED), requests.c.not_before <= now)
        # Ordered, so that every planner uses the index for this query.
        oldest = requests.c.not_before
        return await self._database.write(
            lambda tx: _change(tx, due, limit, RequestState.WAITING, oldest)
        )

    async def expire(self, now: float, limit: int) -> int:
        over = sa.and_(MORTAL, requests.c.expires_at <= now)
        return await self._database.write(lambda tx: _change(tx, over, limit, RequestState.EXPIRED))

    async def cancel(self, run_id: str, now: float) -> int:
        def work(tx: Tx) -> int:
            run = hold_run(tx, run_id)
            return cancel_open(tx, run.no, now, f"the run was {run.state}")

        return await self._database.write(work)

    async def revive(self, run_id: str) -> int:
        def work(tx: Tx) -> int:
            run = hold_run(tx, run_id)
            if run.cancelled:
                raise Conflict(f"run {run_id} is cancelled; its dead requests stay dead")
            forget_run_probes(tx, [run.no])
            forgiven = dict.fromkeys(("block", "fault", "died_at")) | {"failures": 0}
            forgiven["not_before"] = 0
            return change_all(tx, run.no, RequestState.DEAD, RequestState.WAITING, **forgiven)

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
            raise unknown_request(request_id)
        return view_of(row)

    async def retry_facts(self, request_ids: Sequence[int]) -> dict[int, RetryFacts]:
        if not request_ids:
            return {}
        query = (
            sa.select(requests.c.id, requests.c.failures, runs.c.settings)
            .join(runs, runs.c.no == requests.c.run)
            .where(in_list(requests.c.id, request_ids))
        )
        rows = await self._database.read(lambda c: c.execute(query).all())
        said = {text: _settings.decode(text) for text in {row.settings for row in rows}}
        return {row.id: _retry_facts(row.failures, said[row.settings]) for row in rows}

    async def attempts(self, request_id: int) -> list[Attempt]:
        query = sa.select(attempts).where(attempts.c.request == request_id)
        query = query.order_by(attempts.c.at, attempts.c.token)
        rows = await self._database.read(lambda c: c.execute(query).mappings().all())
        return [Attempt(**row) for row in rows]


def _retry_facts(failures: int, run: RunSettings) -> RetryFacts:
    return RetryFacts(failures, run.retries, run.backoff_first, run.backoff_cap)


def accept_rows(tx: Tx, run: HeldRun, rows: Sequence[RequestRow], now: float) -> Accepted:
    """Store requests as WAITING, each fingerprint once; raises Conflict for an ended run."""
    if run.ended:
        raise Conflict(f"run {run.id} is {run.state} and accepts no more requests")
    new = _insert(tx, run, rows, now)
    tx.tally(run.no, ACCEPTED, new)
    tx.tally(run.no, RequestState.WAITING, new)
    return Accepted(new, len(rows) - new)


def _without_known(tx: Tx, run: int, rows: Sequence[RequestRow]) -> Sequence[RequestRow]:
    """Leaves out known rows, which would use up ids although nothing is stored. A few are
    looked up first; all are looked up only when one of these is known."""
    step = max(1, len(rows) // PROBES)
    if not _known(tx, run, rows[::step]):
        return rows
    known = _known(tx, run, rows)
    return [row for row in rows if row.fingerprint not in known]


def _known(tx: Tx, run: int, rows: Sequence[RequestRow]) -> set[bytes]:
    of_run = sa.select(requests.c.fingerprint).where(requests.c.run == run)
    found: set[bytes] = set()
    for start in range(0, len(rows), LOOKUP):
        some = [row.fingerprint for row in rows[start : start + LOOKUP]]
        found |= {
            bytes(row[0]) for row in tx.execute(of_run.where(requests.c.fingerprint.in_(some)))
        }
    return found


def _insert(tx: Tx, run: HeldRun, rows: Sequence[RequestRow], now: float) -> int:
    values = [_row(run.no, row, now) for row in rows]
    parents = {row.parent for row in rows if row.parent is not None}
    if not parents or not run.rules.placement.traits.chains:
        return insert_requests(tx, run.no, _COLUMNS, values, now)
    found = origins(tx, run.no, parents)
    placed = [
        (*value, *found.get(row.parent or 0, NOWHERE))
        for value, row in zip(values, rows, strict=True)
    ]
    return insert_requests(tx, run.no, (*_COLUMNS, "place", "root"), placed, now)


def insert_requests(tx: Tx, run: int, columns: Sequence[str], values: list[Row], now: float) -> int:
    """Insert the requests of a run that are new, with the span of their ids."""
    found = tx.dialect.insert_spanning(tx.connection, requests, columns, values)
    if found.new:
        tx.span(run, now, found.low, found.high)
    return found.new


def _row(run: int, row: RequestRow, now: float) -> tuple[Any, ...]:
    return (
        run,
        row.fingerprint,
        row.uri,
        row.host,
        row.priority,
        row.arguments,
        0,  # RequestState.WAITING as a literal: this runs once per accepted request
        0,
        0.0,
        row.expires_at,
        now,
    )


def _change(tx: Tx, condition: Any, limit: int, to: RequestState, order: Any = None) -> int:
    """Move some rows that match `condition` to another state, with their tallies."""
    query = sa.select(requests.c.id, requests.c.run, requests.c.state).where(condition)
    if order is not None:
        query = query.order_by(order)
    rows = tx.execute(query.limit(limit).with_for_update(skip_locked=True)).all()
    if not rows:
        return 0
    tx.execute(
        sa.update(requests)
        .where(in_list(requests.c.id, (row.id for row in rows)))
        .values(state=int(to))
    )
    for row in rows:
        tx.move(row.run, row.state, to, 1)
    return len(rows)


def view_of(row: Any) -> RequestView:
    """A row with its `run_id` and the state of its block."""
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
