"""Summaries of ended runs. Implements `RunSummaries`. Run by centers only.

A row is written by the transaction that ends the run, so that no end is missed.
"""

from __future__ import annotations

from typing import Any

import msgspec
import sqlalchemy as sa

from skep.model.monitoring.run_summary import RunSummary
from skep.model.states import RunState
from skep.store.ports.monitoring import EndedSummary, ItemSample, MonitorLease
from skep.store.sql.engine.database import Database, Tx
from skep.store.sql.monitoring.leases import check_monitor_lease
from skep.store.sql.runs.runs import number_of
from skep.store.sql.schema.monitoring import run_summaries as summaries
from skep.store.sql.schema.runs import items

#: Places of a run from which items are sampled.
WINDOWS = 10
_summary = msgspec.msgpack.Decoder(RunSummary)


class SqlRunSummaries:
    """Rows of `run_summaries`; reads `items`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def unjudged(self, limit: int) -> list[EndedSummary]:
        query = sa.select(summaries).where(summaries.c.judged == 0)
        query = query.order_by(summaries.c.ended_at, summaries.c.run).limit(limit)
        rows = await self._database.read(lambda c: c.execute(query).all())
        return [EndedSummary(row.run, row.job, row.state, row.ended_at) for row in rows]

    async def items(self, run: str, sample: int) -> ItemSample:
        return await self._database.read(lambda c: _sampled(c, number_of(c, run), sample))

    async def history(self, job: str, before: float, limit: int) -> list[RunSummary]:
        query = sa.select(summaries.c.body).where(
            summaries.c.job == job,
            summaries.c.ended_at < before,
            summaries.c.state == str(RunState.FINISHED),
            summaries.c.body.is_not(None),
        )
        query = query.order_by(summaries.c.ended_at.desc()).limit(limit)
        found = await self._database.read(lambda c: list(c.execute(query).scalars()))
        return [_summary.decode(bytes(body)) for body in found]

    async def judge(
        self, lease: MonitorLease, run: str, summary: RunSummary | None, finding: str
    ) -> bool:
        body = None if summary is None else msgspec.msgpack.encode(summary)
        new = sa.and_(summaries.c.run == run, summaries.c.judged == 0)
        change = sa.update(summaries).where(new).values(judged=1, body=body, finding=finding)

        def work(tx: Tx) -> bool:
            check_monitor_lease(tx, lease)
            return bool(tx.execute(change).rowcount)

        return await self._database.write(work)

    async def forget(self, lease: MonitorLease, before: float, limit: int) -> int:
        old = sa.and_(summaries.c.judged == 1, summaries.c.ended_at < before)
        query = sa.select(summaries.c.run).where(old).order_by(summaries.c.ended_at).limit(limit)

        def work(tx: Tx) -> int:
            check_monitor_lease(tx, lease)
            runs = list(tx.execute(query).scalars())
            if runs:
                tx.execute(sa.delete(summaries).where(summaries.c.run.in_(runs)))
            return len(runs)

        return await self._database.write(work)


def _sampled(connection: sa.Connection, run: int, sample: int) -> ItemSample:
    of_run = items.c.run == run
    ends = sa.select(sa.func.count(), sa.func.min(items.c.id), sa.func.max(items.c.id))
    count, first, last = connection.execute(ends.where(of_run)).one()
    if not count:
        return ItemSample(0, [])
    found: dict[int, bytes] = {}
    for window in range(WINDOWS):
        start = first + (last - first) * window // WINDOWS
        query = sa.select(items.c.id, items.c.data).where(of_run, items.c.id >= start)
        rows: Any = connection.execute(query.order_by(items.c.id).limit(sample // WINDOWS))
        found |= {row.id: bytes(row.data) for row in rows}
    return ItemSample(int(count), list(found.values()))
