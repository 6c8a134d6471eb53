"""Schedules and the ledger of fires. Implements `Fires` of `ports/schedules.py`; centers only.

A due time enters the ledger in the transaction that advances its job's `decided`, under the lock
of the schedule's row: two centers cannot both do it, and neither can do half of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from skep.model.jobs.fire import ON_THEIR_WAY, Fire, FireState, Planned, Step, key_of_chain
from skep.model.jobs.generator_progress import part_of
from skep.model.jobs.schedule import Schedule
from skep.store.sql.engine.database import Database, Tx
from skep.store.sql.schema.schedules import OPEN, fires, followers, schedules

#: Maximum rows of one statement, with two parameters each; SQLite allows 32,766.
CHUNK = 500
REASON_LIMIT = 500
FIRE_COLUMNS = tuple(column.name for column in fires.columns)

_schedule = msgspec.json.Decoder(Schedule)
_ended = fires.c.state.not_in([str(state) for state in ON_THEIR_WAY])


def _is(state: FireState) -> sa.ColumnElement[bool]:
    return fires.c.state == str(state)


# Every center runs them every second: built once, because building costs more than running.
_DUE = (
    sa.select(schedules)
    .where(schedules.c.next_at <= sa.bindparam("now", type_=sa.Float))
    .order_by(schedules.c.next_at, schedules.c.job)
    .limit(sa.bindparam("n", type_=sa.Integer))
)
_IN_GOOD_HANDS = sa.and_(
    _is(FireState.CLAIMED),
    fires.c.claimed_at.between(
        sa.bindparam("since", type_=sa.Float), sa.bindparam("until", type_=sa.Float)
    ),
)
_UNATTENDED = (
    sa.select(fires)
    .where(OPEN, ~_IN_GOOD_HANDS)
    # Sorted by name, claimed comes before due, and due before queued.
    .order_by(fires.c.state, fires.c.due_at, fires.c.job)
    .limit(sa.bindparam("n", type_=sa.Integer))
)


class SqlFires:
    """Rows of `schedules`, `followers` and `fires`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def plan(self, planned: Planned) -> bool:
        return await self._database.write(lambda tx: plan(tx, planned))

    async def unplan(self, job: str, now: float) -> bool:
        return await self._database.write(lambda tx: unplan(tx, job, now))

    async def planned(self, jobs: Sequence[str] | None = None) -> list[Planned]:
        query = sa.select(schedules).order_by(schedules.c.job)
        if jobs is not None:
            query = query.where(schedules.c.job.in_(jobs))
        return await self._database.read(lambda c: [planned_in(row) for row in c.execute(query)])

    async def parts(self, job: str) -> list[str]:
        names = schedules.c.job.startswith(part_of(job, ""), autoescape=True)
        query = sa.select(schedules.c.job).where(names).order_by(schedules.c.job)
        return await self._database.read(lambda c: list(c.execute(query).scalars()))

    async def due(self, now: float, limit: int) -> list[Planned]:
        bound = {"now": now, "n": limit}
        return await self._database.read(lambda c: [planned_in(r) for r in c.execute(_DUE, bound)])

    async def ahead(self, moment: float, limit: int) -> list[Planned]:
        query = sa.select(schedules).where(schedules.c.decided > moment)
        query = query.order_by(schedules.c.job).limit(limit)
        return await self._database.read(lambda c: [planned_in(row) for row in c.execute(query)])

    async def turn_back(self, changes: Sequence[tuple[Planned, Planned]]) -> int:
        return await self._database.write(
            lambda tx: sum(_turned_back(tx, *pair) for pair in changes)
        )

    async def claim(self, steps: Sequence[Step]) -> list[Fire]:
        if not steps:
            return []
        return await self._database.write(lambda tx: _claim(tx, steps))

    async def add(self, new: Sequence[Fire]) -> int:
        return await self._database.write(lambda tx: _insert(tx, new))

    async def succeeded(self, job: str, run: str, now: float) -> int:
        return await self._database.write(lambda tx: follow(tx, job, run, now))

    async def pending(self, jobs: Sequence[str]) -> list[Fire]:
        query = sa.select(fires).where(fires.c.job.in_(jobs), OPEN)
        query = query.order_by(fires.c.due_at, fires.c.job)
        if not jobs:
            return []
        return await self._database.read(lambda c: [fire_in(row) for row in c.execute(query)])

    async def unattended(self, now: float, patience: float, limit: int) -> list[Fire]:
        bound = {"since": now - patience, "until": now + patience, "n": limit}
        return await self._database.read(
            lambda c: [fire_in(row) for row in c.execute(_UNATTENDED, bound)]
        )

    async def change(self, changes: Sequence[tuple[Fire, Fire]]) -> list[Fire]:
        if not changes:
            return []
        return await self._database.write(lambda tx: _change(tx, changes))

    async def of_job(self, job: str, limit: int, before: int | None = None) -> list[Fire]:
        query = sa.select(fires).where(fires.c.job == job)
        if before is not None:
            query = query.where(fires.c.due_at < before)
        query = query.order_by(fires.c.due_at.desc(), fires.c.fire_key.desc()).limit(limit)
        return await self._database.read(lambda c: [fire_in(row) for row in c.execute(query)])

    async def forget(self, before: int, limit: int) -> int:
        ended = (fires.c.due_at < before, _ended)
        oldest = sa.select(fires.c.due_at).where(*ended).order_by(fires.c.due_at).limit(limit)

        def work(tx: Tx) -> int:
            found = tx.execute(oldest).scalars().all()
            if not found:
                return 0
            gone = sa.delete(fires).where(*ended, fires.c.due_at <= found[-1])
            return int(tx.execute(gone).rowcount)

        return await self._database.write(work)


def plan(tx: Tx, planned: Planned) -> bool:
    """`Fires.plan`, inside a transaction that also stores the job."""
    document = msgspec.json.encode(planned.schedule, order="deterministic").decode()
    row = tx.execute(_lock([planned.job])).first()
    if row is not None and row.document == document:
        return False
    values = {"document": document, "decided": planned.decided, "next_at": planned.next_at}
    if row is None:
        # Another center may be planning the same new job: then its plan comes first.
        columns = ("job", *values, "version")
        tx.dialect.insert_new(
            tx.connection, schedules, columns, [(planned.job, *values.values(), 0)]
        )
    mine = schedules.c.job == planned.job
    tx.execute(sa.update(schedules).where(mine).values(**values, version=schedules.c.version + 1))
    tx.execute(sa.delete(followers).where(followers.c.job == planned.job))
    links = [(upstream, planned.job) for upstream in planned.schedule.after]
    tx.dialect.insert_new(tx.connection, followers, ("upstream", "job"), links)
    return True


def unplan(tx: Tx, job: str, now: float) -> bool:
    """`Fires.unplan`, inside a transaction that also removes the job."""
    tx.execute(sa.delete(followers).where(followers.c.job == job))
    waiting = sa.and_(fires.c.job == job, _is(FireState.QUEUED))
    skipped = {"state": str(FireState.SKIPPED), "reason": "its schedule was deleted"}
    tx.execute(sa.update(fires).where(waiting).values(**skipped, ended_at=now))
    return tx.execute(sa.delete(schedules).where(schedules.c.job == job)).rowcount > 0


def follow(tx: Tx, job: str, run: str, now: float) -> int:
    """`Fires.succeeded`, inside the transaction that ends the run: a crash cannot come between
    the success and the jobs that follow it."""
    query = sa.select(followers.c.job).where(followers.c.upstream == job)
    key, why = key_of_chain(run), f"run {run} of {job} succeeded"
    new = [
        Fire(follower, key, int(now), FireState.DUE, why)
        for follower in tx.execute(query).scalars()
    ]
    return _insert(tx, new)


def _turned_back(tx: Tx, before: Planned, after: Planned) -> bool:
    row = tx.execute(_lock([before.job])).first()
    if row is None or (row.decided, row.version) != (before.decided, before.version):
        return False
    mine = schedules.c.job == before.job
    values = {"decided": after.decided, "next_at": after.next_at, "version": row.version + 1}
    tx.execute(sa.update(schedules).where(mine).values(**values))
    decided = fires.c.job == before.job, fires.c.due_at > after.decided
    tx.execute(sa.delete(fires).where(*decided, fires.c.run == "", _ended))
    return True


def _claim(tx: Tx, steps: Sequence[Step]) -> list[Fire]:
    by_job = {step.of.job: step for step in steps}
    valid: list[Step] = []
    for part in _chunks(sorted(by_job)):
        for row in tx.execute(_lock(part)):
            step = by_job[row.job]
            if (row.decided, row.version) == (step.of.decided, step.of.version):
                valid.append(step)
    _move_on(tx, valid)
    offered = [fire for step in valid for fire in step.fires]
    if _insert(tx, offered) == len(offered):
        return offered
    # Some exist already: for example after a clock went back and the schedule changed.
    mine = {(fire.job, fire.key): fire for fire in offered}
    return [fire for fire in _stored(tx, mine) if mine[fire.job, fire.key] == fire]


def _move_on(tx: Tx, steps: Sequence[Step]) -> None:
    mark = tx.dialect.placeholder
    rows = [(step.decided, step.next_at, step.of.job) for step in steps]
    if rows:
        tx.connection.exec_driver_sql(
            f"UPDATE schedules SET decided = {mark}, next_at = {mark} WHERE job = {mark}",  # noqa: S608
            rows,
        )


def _change(tx: Tx, changes: Sequence[tuple[Fire, Fire]]) -> list[Fire]:
    wanted = {(before.job, before.key): (before, after) for before, after in changes}
    written: list[Fire] = []
    for stored in _stored(tx, wanted):
        before, after = wanted[stored.job, stored.key]
        if (stored.state, stored.token) == (before.state, before.token):
            written.append(after)
    mark = tx.dialect.placeholder
    values = ("state", "reason", "run", "center", "token", "claimed_at", "ended_at")
    sets = ", ".join(f"{name} = {mark}" for name in values)
    rows = [(*_row(fire)[3:], fire.job, fire.key) for fire in written]
    if rows:
        tx.connection.exec_driver_sql(
            f"UPDATE fires SET {sets} WHERE job = {mark} AND fire_key = {mark}",  # noqa: S608
            rows,
        )
    return written


def _stored(tx: Tx, keys: Iterable[tuple[str, str]]) -> list[Fire]:
    """Locked until the end of the transaction; always in one order, to avoid deadlocks."""
    found: list[Fire] = []
    for part in _chunks(sorted(keys)):
        # Not by pairs, for which SQLite would read the whole table; fires of many jobs that are
        # processed together usually have the same few keys.
        jobs, names = ({pair[place] for pair in part} for place in (0, 1))
        query = sa.select(fires).where(fires.c.job.in_(jobs), fires.c.fire_key.in_(names))
        query = query.order_by(fires.c.job, fires.c.fire_key).with_for_update()
        wanted = set(part)
        rows = (fire_in(row) for row in tx.execute(query))
        found += [fire for fire in rows if (fire.job, fire.key) in wanted]
    return found


def _lock(jobs: Sequence[str]) -> sa.Select[Any]:
    query = sa.select(schedules).where(schedules.c.job.in_(jobs))
    return query.order_by(schedules.c.job).with_for_update()


def _insert(tx: Tx, new: Sequence[Fire]) -> int:
    rows = [_row(fire) for fire in new]
    return tx.dialect.insert_new(tx.connection, fires, FIRE_COLUMNS, rows)


def _chunks(keys: Sequence[Any]) -> Iterable[Sequence[Any]]:
    return (keys[start : start + CHUNK] for start in range(0, len(keys), CHUNK))


def _row(fire: Fire) -> tuple[Any, ...]:
    return (
        fire.job,
        fire.key,
        fire.due_at,
        str(fire.state),
        fire.reason[:REASON_LIMIT],
        fire.run,
        fire.center,
        fire.token,
        fire.claimed_at,
        fire.ended_at,
    )


def fire_in(row: Any) -> Fire:
    """A fire from its row. Lists select the columns in another order."""
    job, key, due_at, state, *rest = (getattr(row, name) for name in FIRE_COLUMNS)
    return Fire(job, key, due_at, FireState(state), *rest)


def planned_in(row: Any) -> Planned:
    """A schedule from its row."""
    schedule = _schedule.decode(row.document)
    return Planned(row.job, schedule, row.decided, row.next_at, row.version)
