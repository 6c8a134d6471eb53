"""Runs of jobs, and the center that supervises each. Implements `JobRuns` of `ports/jobs.py`.

Run by centers only. Two centers never supervise one run: the row's lease decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from skep.model.jobs.generator_progress import generator_of, part_of, split_part
from skep.model.jobs.job import JobRun, RunLease
from skep.model.run import RunSettings
from skep.model.states import RunState
from skep.store.sql.engine.database import Database, Tx
from skep.store.sql.runs.supervisor_lease import holds
from skep.store.sql.schema.jobs import job_runs
from skep.store.sql.schema.requests import tallies
from skep.store.sql.schema.runs import runs

_COLUMNS = tuple(column.name for column in job_runs.columns)
_BITS = ("open", "fed")
#: In these states a run needs no supervision until a user continues it.
RESTING = ("paused", "failed")


class SqlJobRuns:
    """Rows of `job_runs`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def begin(self, new: JobRun) -> JobRun:
        row = tuple(
            int(getattr(new, name)) if name in _BITS else getattr(new, name) for name in _COLUMNS
        )
        same = sa.and_(job_runs.c.job == new.job, job_runs.c.fire_key == new.fire_key)

        def work(tx: Tx) -> JobRun:
            if tx.dialect.insert_new(tx.connection, job_runs, _COLUMNS, [row]):
                return new
            return _job_run(tx.execute(sa.select(job_runs).where(same)).one())

        return await self._database.write(work)

    async def get(self, run_id: str) -> JobRun | None:
        query = sa.select(job_runs).where(job_runs.c.run == run_id)
        row = await self._database.read(lambda c: c.execute(query).first())
        return None if row is None else _job_run(row)

    async def fired(self, job: str, fire_key: str) -> JobRun | None:
        same = sa.and_(job_runs.c.job == job, job_runs.c.fire_key == fire_key)
        query = sa.select(job_runs).where(same)
        row = await self._database.read(lambda c: c.execute(query).first())
        return None if row is None else _job_run(row)

    async def going(
        self, jobs: Sequence[str], *, parts: bool = False, failed: bool = True
    ) -> dict[str, list[str]]:
        columns = (job_runs.c.job, job_runs.c.run, job_runs.c.fire_key)
        names = {split_part(name)[0] for name in jobs} if parts else jobs
        query = sa.select(*columns).where(job_runs.c.open == 1, job_runs.c.job.in_(names))
        query = query.order_by(job_runs.c.at.desc())
        if not failed:
            lost = (runs.c.id == job_runs.c.run, runs.c.state == RunState.FAILED)
            query = query.where(~sa.exists().where(*lost))
        wanted, found = set(jobs), dict[str, list[str]]()
        for row in await self._database.read(lambda c: c.execute(query).all()):
            generator = generator_of(row.fire_key) if parts else ""
            name = part_of(row.job, generator) if generator else row.job
            if name in wanted:
                found.setdefault(name, []).append(row.run)
        return found

    async def of(self, job: str, limit: int, *, only_open: bool = False) -> list[JobRun]:
        query = sa.select(job_runs).where(job_runs.c.job == job)
        query = query.order_by(job_runs.c.at.desc(), job_runs.c.run.desc()).limit(limit)
        if only_open:
            query = query.where(job_runs.c.open == 1)
        return await self._database.read(lambda c: [_job_run(row) for row in c.execute(query)])

    async def claim(self, holder: str, now: float, until: float, limit: int) -> list[JobRun]:
        mine = sa.and_(job_runs.c.holder == holder, job_runs.c.open == 1)

        def work(tx: Tx) -> list[JobRun]:
            tx.execute(sa.update(job_runs).where(mine).values(held_until=until))
            held = list(tx.execute(sa.select(job_runs).where(mine)))
            held += _taken(tx, holder, now, until, limit - len(held))
            return [_job_run(row) for row in held]

        return await self._database.write(work)

    async def note(self, lease: RunLease, **facts: Any) -> bool:
        values = {name: int(v) if name in _BITS else v for name, v in facts.items()}
        change = sa.update(job_runs).where(holds(lease)).values(**values)
        return await self._database.write(lambda tx: bool(tx.execute(change).rowcount))

    async def holds(self, lease: RunLease) -> bool:
        query = sa.select(job_runs.c.run).where(holds(lease))
        return await self._database.read(lambda c: c.execute(query).first() is not None)

    async def adjust(self, run_id: str, settings: RunSettings) -> bool:
        fed = sa.exists().where(tallies.c.run == runs.c.no, tallies.c.n > 0)
        change = sa.update(runs).where(runs.c.id == run_id, ~fed)
        change = change.values(settings=msgspec.msgpack.encode(settings))
        return await self._database.write(lambda tx: bool(tx.execute(change).rowcount))

    async def revise(self, run_id: str, revision: int, settings: RunSettings) -> bool:
        row = sa.update(job_runs).where(job_runs.c.run == run_id).values(revision=revision)
        change = sa.update(runs).where(runs.c.id == run_id)
        change = change.values(settings=msgspec.msgpack.encode(settings))

        def work(tx: Tx) -> bool:
            known = tx.execute(sa.select(job_runs.c.run).where(job_runs.c.run == run_id)).first()
            if known is not None:
                tx.execute(row)
                tx.execute(change)
            return known is not None

        return await self._database.write(work)

    async def release(self, holder: str, lease: RunLease | None = None) -> None:
        mine = sa.and_(job_runs.c.holder == holder, job_runs.c.open == 1)
        change = sa.update(job_runs).where(mine if lease is None else holds(lease))
        await self._database.write(
            lambda tx: tx.execute(change.values(holder="", held_until=0.0)) and None
        )


def _taken(tx: Tx, holder: str, now: float, until: float, limit: int) -> list[Any]:
    """Open runs that no center holds and that need supervision, oldest first."""
    if limit <= 0:
        return []
    resting = sa.exists().where(runs.c.id == job_runs.c.run, runs.c.state.in_(RESTING))
    free = (
        sa.select(job_runs)
        .where(job_runs.c.open == 1, job_runs.c.held_until < now, ~resting)
        .order_by(job_runs.c.held_until, job_runs.c.at)
        .limit(limit)
        .with_for_update(skip_locked=True, of=job_runs)
    )
    rows = list(tx.execute(free))
    names = [row.run for row in rows]
    change = sa.update(job_runs).where(job_runs.c.run.in_(names))
    if names:
        taken = {"holder": holder, "held_until": until, "lease": job_runs.c.lease + 1}
        tx.execute(change.values(**taken))
    return list(tx.execute(sa.select(job_runs).where(job_runs.c.run.in_(names)))) if names else []


def _job_run(row: Any) -> JobRun:
    values = {name: getattr(row, name) for name in _COLUMNS}
    return JobRun(**{**values, "open": bool(row.open), "fed": bool(row.fed)})
