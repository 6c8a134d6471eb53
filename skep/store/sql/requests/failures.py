"""Dead requests by group and by filter, and actions on many of them. Centers only.

Implements `Failures`. Groups are counted from one index that contains only dead requests; there
are no separate counts that could drift. Readers search for requests: the writer only gets a
bounded list of ids.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Literal

import sqlalchemy as sa

from skep.errors import InvalidInput
from skep.model.failures.dead_requests import (
    Act,
    Acted,
    DeadRequest,
    FailureFilter,
    FailureGroup,
    RequestFilter,
)
from skep.model.failures.failure_fingerprint import group_name, parse_group
from skep.model.people.scope import EVERYTHING, Scope
from skep.model.states import RequestState, RunState
from skep.store.ports.requests import RequestView
from skep.store.sql.engine.database import Database, Tx
from skep.store.sql.engine.dialect import id_list
from skep.store.sql.engine.predicates import in_list, stored, written_out
from skep.store.sql.engine.text_matching import Truth
from skep.store.sql.filters.inside import of_runs_inside
from skep.store.sql.hosts.robots_probes import forget_run_probes
from skep.store.sql.requests.cancel import cancel_some
from skep.store.sql.requests.delete_ended import forget_requests
from skep.store.sql.requests.requests import view_of
from skep.store.sql.runs.runs import HeldRun, hold_runs
from skep.store.sql.schema.blocks import blocks
from skep.store.sql.schema.ended_work import faults
from skep.store.sql.schema.requests import attempts, requests
from skep.store.sql.schema.runs import runs

_LAST = sa.and_(attempts.c.request == requests.c.id, attempts.c.block == requests.c.block)


class SqlFailures:
    """Rows of `requests` that are dead, and others by filter."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def groups(
        self, wanted: FailureFilter, limit: int, scope: Scope = EVERYTHING
    ) -> list[FailureGroup]:
        n, died = sa.func.count().label("n"), requests.c.died_at
        keys = (requests.c.fault, requests.c.host)
        query = sa.select(*keys, n, sa.func.min(died).label("first"), sa.func.max(died))
        query = _fitting(query, wanted, self._inside(scope)).group_by(*keys)
        query = query.order_by(n.desc(), *keys).limit(limit)

        def work(connection: sa.Connection) -> list[FailureGroup]:
            rows = connection.execute(query).all()
            words = _words(connection, {row.fault or 0 for row in rows})
            return [_group(tuple(row), words) for row in rows]

        return await self._database.read(work)

    async def count(self, wanted: FailureFilter, scope: Scope = EVERYTHING) -> int:
        counted = sa.select(sa.func.count()).select_from(requests)
        query = _fitting(counted, wanted, self._inside(scope))
        return await self._database.read(lambda c: int(c.execute(query).scalar_one()))

    async def find(
        self, wanted: FailureFilter, after: int, limit: int, scope: Scope = EVERYTHING
    ) -> list[DeadRequest]:
        query = _fitting(sa.select(requests.c.id), wanted, self._inside(scope))
        query = query.where(requests.c.id > after)
        query = query.order_by(requests.c.id).limit(limit)

        def work(connection: sa.Connection) -> list[DeadRequest]:
            return _dead(connection, list(connection.execute(query).scalars()))

        return await self._database.read(work)

    async def act(self, act: Act, ids: Sequence[int], before: float) -> Acted:
        if not ids:
            return Acted(0)
        return await self._database.write(lambda tx: _act(tx, act, ids, before))

    async def requests(
        self, wanted: RequestFilter, after: int, limit: int, scope: Scope = EVERYTHING
    ) -> list[RequestView]:
        state = blocks.c.state.label("block_state")
        query = sa.select(requests, runs.c.id.label("run_id"), state)
        query = query.join(runs, runs.c.no == requests.c.run)
        query = query.outerjoin(blocks, blocks.c.id == requests.c.block)
        query = _asked(query, wanted, self._inside(scope)).where(requests.c.id > after)
        query = query.order_by(requests.c.id).limit(limit)
        return await self._database.read(lambda c: [view_of(row) for row in c.execute(query)])

    async def count_requests(self, wanted: RequestFilter, scope: Scope = EVERYTHING) -> int:
        counted = sa.select(sa.func.count()).select_from(requests)
        query = _asked(counted, wanted, self._inside(scope))
        return await self._database.read(lambda c: int(c.execute(query).scalar_one()))

    async def cancel(self, ids: Sequence[int], now: float) -> Acted:
        if not ids:
            return Acted(0)
        return await self._database.write(lambda tx: cancel_some(tx, ids, now))

    def _inside(self, scope: Scope) -> list[Truth]:
        return of_runs_inside(requests.c.run, scope, self._database.dialect.name)


def _of_run(run: str, job: str) -> list[sa.ColumnElement[bool]]:
    found = []
    if run:
        number = sa.select(runs.c.no).where(runs.c.id == run).scalar_subquery()
        found.append(requests.c.run == number)
    if job:
        found.append(requests.c.run.in_(sa.select(runs.c.no).where(runs.c.job == job)))
    return found


def _fitting(query: sa.Select[Any], wanted: FailureFilter, inside: list[Truth]) -> sa.Select[Any]:
    # Dead requests have a fingerprint; where an index has every row, this excludes most.
    died = (stored(RequestState.DEAD), requests.c.fault.is_not(None))
    conditions = [*died, *_of_run(wanted.run, wanted.job), *inside]
    if wanted.group:
        conditions += _of_group(wanted.group)
    if wanted.host:
        conditions.append(requests.c.host == wanted.host)
    if wanted.failure or wanted.status is not None:
        conditions.append(requests.c.fault.in_(_kinds(wanted)))
    if wanted.since is not None:
        conditions.append(requests.c.died_at >= wanted.since)
    if wanted.until is not None:
        conditions.append(requests.c.died_at < wanted.until)
    if wanted.text:
        said = attempts.c.detail.icontains(wanted.text, autoescape=True)
        conditions.append(sa.exists().where(_LAST, said).correlate(requests))
    return query.where(*conditions)


def _of_group(name: str) -> list[sa.ColumnElement[bool]]:
    try:
        fault, host = parse_group(name)
    except ValueError as error:
        raise InvalidInput(str(error)) from error
    same = [requests.c.fault == fault]
    return same if host is None else [*same, requests.c.host == host]


def _kinds(wanted: FailureFilter) -> sa.Select[Any]:
    query = sa.select(faults.c.id)
    if wanted.failure:
        query = query.where(faults.c.failure == wanted.failure)
    return query if wanted.status is None else query.where(faults.c.status == wanted.status)


def _asked(query: sa.Select[Any], wanted: RequestFilter, inside: list[Truth]) -> sa.Select[Any]:
    conditions = [*_of_run(wanted.run, wanted.job), *inside]
    if wanted.host:
        conditions.append(requests.c.host == wanted.host)
    if wanted.state:
        conditions.append(stored(RequestState[wanted.state.upper()]))
    if wanted.text:
        conditions.append(requests.c.uri.icontains(wanted.text, autoescape=True))
    if wanted.since is not None:
        conditions.append(requests.c.created_at >= wanted.since)
    if wanted.until is not None:
        conditions.append(requests.c.created_at < wanted.until)
    return query.where(*conditions)


def _words(connection: sa.Connection, ids: set[int]) -> dict[int, tuple[str, int, str]]:
    query = sa.select(faults).where(in_list(faults.c.id, ids))
    return {row.id: (row.failure, row.status, row.text) for row in connection.execute(query)}


def _group(row: tuple[Any, ...], words: dict[int, tuple[str, int, str]]) -> FailureGroup:
    fault, host, n, first, last = row
    failure, status, text = words.get(fault or 0, ("", 0, "failed before failures were grouped"))
    name = group_name(fault or 0, host)
    return FailureGroup(name, host, failure, status, text, int(n), first or 0.0, last or 0.0)


def _dead(connection: sa.Connection, ids: list[int]) -> list[DeadRequest]:
    if not ids:
        return []
    tried = (attempts.c.failure, attempts.c.status, attempts.c.detail, attempts.c.agent)
    query = (
        sa.select(requests, runs.c.id.label("run_id"), *tried)
        .join(runs, runs.c.no == requests.c.run)
        .outerjoin(attempts, _LAST)
        .where(in_list(requests.c.id, ids))
        .order_by(requests.c.id, attempts.c.token)
    )
    # A request has a row for each lease in which it was reported; the last one counts.
    found = {row.id: row for row in connection.execute(query)}
    return [_dead_request(row) for row in found.values()]


def _dead_request(row: Any) -> DeadRequest:
    return DeadRequest(
        row.id,
        row.run_id,
        row.uri,
        group_name(row.fault or 0, row.host),
        row.failures,
        row.died_at or 0.0,
        row.failure or "",
        row.status or 0,
        row.detail or "",
        row.agent or "",
    )


def _act(tx: Tx, act: Act, ids: Sequence[int], before: float) -> Acted:
    wanted = (
        f"id IN ({id_list(ids)}) AND state = {RequestState.DEAD:d}"
        f" AND (died_at IS NULL OR died_at < {float(before)!r})"
    )
    rows, held = hold_with_runs(tx, wanted)
    fit = [row for row in rows if row.run in held and _allowed(act, held[row.run])]
    if fit and act == "forget":
        forget_requests(tx, [row.id for row in fit])
    elif fit:
        change_dead(tx, "retry" if act == "retry" else "cancel", fit)
    resting = {held[row.run].id for row in fit if act == "retry" and not held[row.run].running}
    return Acted(len(fit), len(rows) - len(fit), tuple(sorted(resting)))


def _allowed(act: Act, run: HeldRun) -> bool:
    if act == "forget":
        return run.ended
    return act != "retry" or run.state != RunState.CANCELLED


def hold_with_runs(tx: Tx, wanted: str) -> tuple[Sequence[Any], dict[int, HeldRun]]:
    """Lock requests, and the states of their runs, for this transaction. `wanted` is made of our
    own words and integers only."""
    found = written_out(wanted)
    return hold_requests(tx, found, found)


def hold_requests(
    tx: Tx, superset: Truth, *wanted: Truth
) -> tuple[Sequence[Any], dict[int, HeldRun]]:
    """The same by conditions. `superset` is cheap and includes whatever the others find: its runs
    are locked first, the same lock order as everywhere, to avoid deadlocks."""
    query = sa.select(*_CHANGED).where(*wanted).order_by(requests.c.id)
    if tx.dialect.one_writer:  # nothing can change meanwhile: one search is enough
        rows = tx.execute(query).all()
        return rows, _runs_of(tx, {row.run for row in rows})
    numbers = tx.execute(sa.select(requests.c.run).where(superset).distinct()).scalars()
    held = _runs_of(tx, set(numbers))
    # A request that has come to match since its run was looked up is left for another time.
    rows = tx.execute(query.with_for_update(of=requests)).all()
    return [row for row in rows if row.run in held], held


def _runs_of(tx: Tx, numbers: set[int]) -> dict[int, HeldRun]:
    return hold_runs(tx, numbers) if numbers else {}


_CHANGED = (requests.c.id, requests.c.run, requests.c.state, requests.c.fault, requests.c.host)


def change_dead(tx: Tx, act: Literal["retry", "cancel"], rows: Sequence[Any]) -> None:
    """Dead requests that are held wait again, or are cancelled."""
    for (fault, host), count in Counter((row.fault, row.host) for row in rows).items():
        if fault is not None:
            tx.deaths.gone(fault, host, count)
    runs_of_rows = Counter(row.run for row in rows)
    forget_run_probes(tx, runs_of_rows)
    to = RequestState.WAITING if act == "retry" else RequestState.CANCELLED
    forgiven = ", failures = 0, block = NULL, fault = NULL, died_at = NULL, not_before = 0"
    tx.sql(
        f"UPDATE requests SET state = {to:d}{forgiven if act == 'retry' else ''}"  # noqa: S608
        f" WHERE id IN ({id_list(row.id for row in rows)})"
    )
    for run, count in runs_of_rows.items():
        tx.move(run, RequestState.DEAD, to, count)
