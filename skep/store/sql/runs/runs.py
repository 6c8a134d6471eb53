"""Runs. Implements `Runs` of `store/ports`; run by centers only.

A change of state is legal by `model/states.py` or raises; `hold_run` keeps a run in its state for
a transaction that depends on it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import sqlalchemy as sa

from skep.errors import Conflict, InvalidInput
from skep.model.hosts.named_places import PLACES_LIMIT
from skep.model.jobs.job import RunLease
from skep.model.labels import relabelled
from skep.model.run import Run, RunSettings
from skep.model.states import ENDED_RUN_STATES, RUN_CHANGES, RunState
from skep.model.unknown_objects import unknown_run
from skep.store.sql.engine.database import Database, Tx
from skep.store.sql.engine.predicates import in_list
from skep.store.sql.monitoring.finished_runs import note_finished
from skep.store.sql.records.notices import note_ending
from skep.store.sql.runs.supervisor_lease import check_lease
from skep.store.sql.schema.runs import run_labels, runs

#: Maximum characters of a reason.
REASON_LIMIT = 2000
#: States in which agents can forget a run; one that is continued gets its agents again.
OVER = (RunState.FINISHED, RunState.CANCELLED, RunState.FAILED)
_LABEL = ("name", "value", "run")
_settings = msgspec.msgpack.Decoder(RunSettings)
_labels = msgspec.msgpack.Decoder(dict[str, str])


class SqlRuns:
    """Rows of `runs`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(self, run: Run) -> bool:
        row = (
            run.id,
            run.job,
            str(run.state),
            msgspec.msgpack.encode(run.settings),
            run.created_at,
            msgspec.msgpack.encode(run.labels) if run.labels else None,
        )
        columns = ("id", "job", "state", "settings", "created_at", "labels")

        def work(tx: Tx) -> bool:
            new = tx.dialect.insert_new(tx.connection, runs, columns, [row]) == 1
            if new and run.labels:
                _write_labels(tx, number_of(tx.connection, run.id), run.labels)
            return new

        return await self._database.write(work)

    async def get(self, run_id: str) -> Run:
        return await self._database.read(lambda connection: _get(connection, run_id))

    async def recent(self, limit: int, before: float | None = None) -> list[Run]:
        query = sa.select(runs).order_by(runs.c.created_at.desc(), runs.c.no.desc())
        if before is not None:
            query = query.where(runs.c.created_at < before)

        def work(connection: sa.Connection) -> list[Run]:
            rows = list(connection.execute(query.limit(limit)))
            if len(rows) == limit:  # the cursor is a time: runs of the same time stay together
                rows += _of_same_moment(connection, rows)
            return [run_in(row) for row in rows]

        return await self._database.read(work)

    async def settings_of(self, run_ids: Sequence[str]) -> dict[str, RunSettings]:
        query = sa.select(runs.c.id, runs.c.settings, runs.c.named)
        query = query.where(runs.c.id.in_(run_ids))
        rows = await self._database.read(lambda c: c.execute(query).all())
        return {row.id: _with_places(row) for row in rows}

    async def name_places(self, run_id: str, places: Collection[str]) -> None:
        def work(tx: Tx) -> None:
            row = _row(tx.connection, _by_id(run_id).with_for_update(), run_id)
            kept = _named(row)
            added = [place for place in sorted(places) if place not in kept]
            named = [*kept, *added][:PLACES_LIMIT]
            change = sa.update(runs).where(runs.c.id == run_id)
            tx.execute(change.values(named=msgspec.msgpack.encode(named)))

        await self._database.write(work)

    async def relabel(self, run_id: str, add: Mapping[str, str], remove: Collection[str]) -> bool:
        return await self._database.write(lambda tx: _relabel(tx, run_id, add, remove))

    async def over(self, run_ids: Sequence[str]) -> list[str]:
        query = sa.select(runs.c.id).where(runs.c.id.in_(run_ids))
        query = query.where(runs.c.state.not_in([str(state) for state in OVER]))
        open_ = await self._database.read(lambda c: set(c.execute(query).scalars()))
        return [run for run in run_ids if run not in open_]

    async def move(
        self,
        run_id: str,
        to: RunState,
        reason: str = "",
        now: float = 0.0,
        lease: RunLease | None = None,
    ) -> Run:
        def work(tx: Tx) -> Run:
            check_lease(tx, lease)
            return move_run(tx, run_id, to, reason, now)

        return await self._database.write(work)


def _write_labels(tx: Tx, run: int, labels: Mapping[str, str]) -> None:
    rows = [(name, value, run) for name, value in sorted(labels.items())]
    tx.dialect.insert_many(tx.connection, run_labels, _LABEL, rows)


def _relabel(tx: Tx, run_id: str, add: Mapping[str, str], remove: Collection[str]) -> bool:
    row = _row(tx.connection, _by_id(run_id).with_for_update(), run_id)
    known = run_in(row).labels
    try:
        labels = relabelled(known, add, remove)
    except ValueError as error:
        raise InvalidInput(f"run {run_id}: {error}") from None
    if labels == known:
        return False
    kept = msgspec.msgpack.encode(labels) if labels else None
    tx.execute(sa.update(runs).where(runs.c.id == run_id).values(labels=kept))
    tx.execute(sa.delete(run_labels).where(run_labels.c.run == row.no))
    _write_labels(tx, row.no, labels)
    return True


def _of_same_moment(connection: sa.Connection, rows: Sequence[Any]) -> list[Any]:
    """Further runs that were created at the same time as the last of these."""
    at = rows[-1].created_at
    known = [row.no for row in rows if row.created_at == at]
    query = sa.select(runs).where(runs.c.created_at == at, runs.c.no.not_in(known))
    return list(connection.execute(query.order_by(runs.c.no.desc())))


def move_run(tx: Tx, run_id: str, to: RunState, reason: str, now: float) -> Run:
    """Change a run's state, with a reason; raises UnknownRun, and Conflict if illegal."""
    run = run_in(_row(tx.connection, _by_id(run_id).with_for_update(), run_id))
    if to == run.state:
        return run
    if to not in RUN_CHANGES[run.state]:
        raise Conflict(f"run {run_id} is {run.state} and cannot become {to}")
    reason = reason.replace("\0", "\ufffd")[:REASON_LIMIT]
    values = {"state": str(to), "reason": reason or None, "changed_at": now}
    tx.execute(sa.update(runs).where(runs.c.id == run_id).values(**values))
    note_ending(tx, run_id, to, reason, now)
    note_finished(tx, run_id, run.job, to, now)
    return msgspec.structs.replace(run, state=to, reason=reason, changed_at=now)


class HeldRun(NamedTuple):
    """A run whose state is locked until the end of the transaction."""

    no: int
    id: str
    state: str
    settings: bytes

    @property
    def running(self) -> bool:
        return self.state == RunState.RUNNING

    @property
    def cancelled(self) -> bool:
        return self.state == RunState.CANCELLED

    @property
    def ended(self) -> bool:
        """Whether no agent takes its requests again, unless a user continues it."""
        return self.state in ENDED_RUN_STATES

    @property
    def rules(self) -> RunSettings:
        return _settings.decode(self.settings)


_HELD = sa.select(runs.c.no, runs.c.id, runs.c.state, runs.c.settings).order_by(runs.c.no)


def hold_run(tx: Tx, run_id: str) -> HeldRun:
    """Lock the state of a run for this transaction; raises UnknownRun.

    Without this a center could add requests to a run that another one is cancelling, and they
    would never end. Holders do not block each other (FOR SHARE).
    """
    query = _HELD.where(runs.c.id == run_id).with_for_update(read=True)
    return HeldRun._make(_row(tx.connection, query, run_id))


def hold_runs(tx: Tx, numbers: Iterable[int]) -> dict[int, HeldRun]:
    """The same for many, by number."""
    query = _HELD.where(in_list(runs.c.no, set(numbers)))
    return {row.no: HeldRun._make(row) for row in tx.execute(query.with_for_update(read=True))}


def number_of(connection: sa.Connection, run_id: str) -> int:
    """The run's number in this store; raises UnknownRun.

    Never cached: a number that was read in a transaction that is rolled back later may belong
    to another run afterwards.
    """
    return int(_row(connection, sa.select(runs.c.no).where(runs.c.id == run_id), run_id).no)


def row_of(connection: sa.Connection, run_id: str) -> Any:
    """The run's row; raises UnknownRun."""
    return _row(connection, _by_id(run_id), run_id)


def _by_id(run_id: str) -> sa.Select[Any]:
    return sa.select(runs).where(runs.c.id == run_id)


def _row(connection: sa.Connection, query: sa.Select[Any], run_id: str) -> Any:
    row = connection.execute(query).first()
    if row is None:
        raise unknown_run(run_id)
    return row


def _get(connection: sa.Connection, run_id: str) -> Run:
    return run_in(_row(connection, _by_id(run_id), run_id))


def run_in(row: Any) -> Run:
    """A run from its row."""
    return Run(
        row.id,
        row.job,
        RunState(row.state),
        _settings.decode(row.settings),
        row.created_at,
        row.reason or "",
        row.changed_at or 0.0,
        _named(row),
        _labels.decode(row.labels) if row.labels else {},
    )


def _named(row: Any) -> tuple[str, ...]:
    return tuple(msgspec.msgpack.decode(row.named, type=list[str])) if row.named else ()


def _with_places(row: Any) -> RunSettings:
    """The settings for agents."""
    settings, named = _settings.decode(row.settings), _named(row)
    if not named:
        return settings
    union = tuple(dict.fromkeys((*settings.named, *named)))[:PLACES_LIMIT]
    return msgspec.structs.replace(settings, named=union)
