"""Runs. Answers `Runs` of `store/ports.py`; run by centers only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from skep.errors import Conflict, UnknownRun
from skep.model.run import Run, RunSettings
from skep.model.states import RUN_CHANGES, RunState
from skep.store.sql.database import Database, Tx
from skep.store.sql.tables import runs

_ENDED = frozenset({RunState.FINISHED, RunState.CANCELLED})
_settings = msgspec.msgpack.Decoder(RunSettings)


class SqlRuns:
    """Rows of `runs`; hands the number behind an id to its neighbours."""

    def __init__(self, database: Database) -> None:
        self._database = database
        # A run's number never changes and is needed for every accept: remembered here.
        self._numbers: dict[str, int] = {}

    async def create(self, run: Run) -> bool:
        row = (
            run.id,
            run.job,
            str(run.state),
            msgspec.msgpack.encode(run.settings),
            run.created_at,
        )
        columns = ("id", "job", "state", "settings", "created_at")

        def work(tx: Tx) -> bool:
            return tx.dialect.insert_new(tx.connection, runs, columns, [row]) == 1

        return await self._database.write(work)

    async def get(self, run_id: str) -> Run:
        return await self._database.read(lambda connection: _get(connection, run_id))

    async def recent(self, limit: int, before: float | None = None) -> list[Run]:
        query = sa.select(runs).order_by(runs.c.no.desc()).limit(limit)
        if before is not None:
            query = query.where(runs.c.created_at < before)
        return await self._database.read(lambda c: [_run(row) for row in c.execute(query)])

    async def settings_of(self, run_ids: Sequence[str]) -> dict[str, RunSettings]:
        query = sa.select(runs.c.id, runs.c.settings).where(runs.c.id.in_(run_ids))
        rows = await self._database.read(lambda c: c.execute(query).all())
        return {row.id: _settings.decode(row.settings) for row in rows}

    async def move(self, run_id: str, to: RunState) -> Run:
        def work(tx: Tx) -> Run:
            run = _get(tx.connection, run_id)
            if to == run.state:
                return run
            if to not in RUN_CHANGES[run.state]:
                raise Conflict(f"run {run_id} is {run.state} and cannot become {to}")
            tx.execute(sa.update(runs).where(runs.c.id == run_id).values(state=str(to)))
            return msgspec.structs.replace(run, state=to)

        return await self._database.write(work)

    def accepting(self, connection: sa.Connection, run_id: str) -> int:
        """The number of a run that still takes requests; raises UnknownRun or Conflict."""
        run = _get(connection, run_id)
        if run.state in _ENDED:
            raise Conflict(f"run {run_id} is {run.state} and takes no more requests")
        return self.number(connection, run_id)

    def number(self, connection: sa.Connection, run_id: str) -> int:
        """The run's number in this store; raises UnknownRun."""
        number = self._numbers.get(run_id)
        if number is None:
            number = connection.execute(sa.select(runs.c.no).where(runs.c.id == run_id)).scalar()
            if number is None:
                raise _unknown(run_id)
            self._numbers[run_id] = number
        return number


def _get(connection: sa.Connection, run_id: str) -> Run:
    row = connection.execute(sa.select(runs).where(runs.c.id == run_id)).first()
    if row is None:
        raise _unknown(run_id)
    return _run(row)


def _run(row: Any) -> Run:
    return Run(row.id, row.job, RunState(row.state), _settings.decode(row.settings), row.created_at)


def _unknown(run_id: str) -> UnknownRun:
    return UnknownRun(
        f"there is no run {run_id!r}; create it with PUT /api/v1/runs/{run_id}"
        " or with `skep submit --new`"
    )
