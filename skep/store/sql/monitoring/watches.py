"""Conditions for alerts that are read from other domains. Implements `Watches`. Centers only.

Each query starts from an index, with a limit; none adds up requests.
"""

from __future__ import annotations

import sqlalchemy as sa

from skep.model.states import RequestState, RunState
from skep.store.ports.monitoring import LateJob, StaleRun
from skep.store.sql.engine.database import Database
from skep.store.sql.runs.figures import recent_answers
from skep.store.sql.schema.requests import tallies
from skep.store.sql.schema.runs import runs
from skep.store.sql.schema.schedules import schedules

#: Requests that agents could work on.
READY = (RequestState.WAITING, RequestState.QUEUED, RequestState.LEASED)
#: Seconds for which a run is new.
NEW = 120.0


class SqlWatches:
    """Reads `runs`, `tallies`, `figures` and `schedules`; writes nothing."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def stale_runs(self, now: float, limit: int) -> list[StaleRun]:
        running = (
            sa.select(runs.c.no, runs.c.id, runs.c.job)
            .where(runs.c.state == str(RunState.RUNNING), runs.c.created_at < now - NEW)
            .where(~recent_answers(runs.c.no, now))
            .order_by(runs.c.no)
            .limit(limit)
            .subquery()
        )
        n = sa.func.sum(tallies.c.n)
        query = (
            sa.select(running.c.id, running.c.job, n.label("n"))
            .join(tallies, tallies.c.run == running.c.no)
            .where(tallies.c.state.in_([int(state) for state in READY]))
            .group_by(running.c.id, running.c.job)
            .having(n > 0)
        )
        rows = await self._database.read(lambda c: c.execute(query).all())
        return [StaleRun(row.id, row.job, int(row.n)) for row in rows]

    async def late_jobs(self, before: float, limit: int) -> list[LateJob]:
        query = sa.select(schedules.c.job, schedules.c.next_at).where(schedules.c.next_at < before)
        query = query.order_by(schedules.c.next_at).limit(limit)
        rows = await self._database.read(lambda c: c.execute(query).all())
        return [LateJob(row.job, row.next_at) for row in rows]
