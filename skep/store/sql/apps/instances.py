"""Instances of application jobs. Implements `Apps` of `store/ports/apps.py`; centers only.

An instance's row is locked before it is changed, always in the order of run and number, so
that two centers and an agent's report never deadlock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from skep.errors import Conflict, NotFound
from skep.model.jobs.app import INSTANCE_ENDS, AppSpec, Instance, InstanceState, desired_state_for
from skep.model.jobs.job import RunLease
from skep.model.states import RunState
from skep.store.ports.apps import AppRun, DesiredInstance, LogPart, LogPiece, ReportedInstance
from skep.store.sql.apps.logs import add_log, read_log
from skep.store.sql.engine.database import Database, Tx
from skep.store.sql.runs.runs import hold_run
from skep.store.sql.runs.supervisor_lease import check_lease
from skep.store.sql.schema.apps import app_instances, app_runs
from skep.store.sql.schema.runs import runs

REASON_LIMIT = 2000
_ENDS = [str(state) for state in INSTANCE_ENDS]
_COLUMNS = tuple(column.name for column in app_instances.columns if column.name != "exit_code")
_spec = msgspec.msgpack.Decoder(AppSpec)
_names = msgspec.msgpack.Decoder(dict[str, str])


class SqlApps:
    """Rows of `app_runs`, `app_instances` and `app_logs`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(
        self,
        run_id: str,
        spec: AppSpec,
        secrets: Mapping[str, str],
        agents: Sequence[str],
        now: float,
        lease: RunLease | None = None,
    ) -> list[Instance]:
        app = (
            run_id,
            msgspec.msgpack.encode(spec),
            msgspec.msgpack.encode(dict(secrets)),
            spec.package,
            now,
        )
        columns = ("run", "spec", "secrets", "package", "at")

        def work(tx: Tx) -> list[Instance]:
            check_lease(tx, lease)
            hold_run(tx, run_id)
            if tx.dialect.insert_new(tx.connection, app_runs, columns, [app]):
                rows = [_new_row(run_id, no, agent, now) for no, agent in enumerate(agents)]
                tx.dialect.insert_many(tx.connection, app_instances, _COLUMNS, rows)
            return _of(tx.connection, run_id)

        return await self._database.write(work)

    async def get(self, run_id: str) -> AppRun | None:
        query = sa.select(app_runs).where(app_runs.c.run == run_id)
        row = await self._database.read(lambda c: c.execute(query).first())
        return None if row is None else _app(row)

    async def of(self, run_id: str) -> list[Instance]:
        return await self._database.read(lambda c: _of(c, run_id))

    async def place(
        self, old: Instance, agent: str, reason: str, now: float, lease: RunLease | None = None
    ) -> bool:
        return await self._change_live(old, lease, lambda held: _placed(held, agent, reason, now))

    async def end(
        self,
        old: Instance,
        state: InstanceState,
        reason: str,
        now: float,
        lease: RunLease | None = None,
    ) -> bool:
        values = {"state": str(state), "reason": _kept(reason), "changed_at": now}
        return await self._change_live(old, lease, lambda _: values)

    async def _change_live(
        self,
        old: Instance,
        lease: RunLease | None,
        values: Callable[[Instance], dict[str, Any]],
    ) -> bool:
        """`values` for the instance as it is now. False when it was placed again meanwhile, or
        has ended."""

        def work(tx: Tx) -> bool:
            check_lease(tx, lease)
            held = _hold(tx, old.run, old.no)
            if held.token != old.token or held.ended:
                return False
            _change(tx, held, **values(held))
            return True

        return await self._database.write(work)

    async def restart(
        self, run_id: str, no: int, now: float, lease: RunLease | None = None
    ) -> Instance:
        def work(tx: Tx) -> Instance:
            check_lease(tx, lease)
            run = hold_run(tx, run_id)
            held = _hold(tx, run_id, no)
            if run.state != RunState.RUNNING:
                raise Conflict(
                    f"run {run_id} is {run.state}; first continue it, or start its job again"
                )
            values: dict[str, Any] = {"round": held.round + 1, "halted": 0}
            if held.ended or not held.agent:
                # Under a new token: the agent no longer knows it, and counts from 0 again.
                values |= _placed(held, "", "it was restarted and waits for an agent", now)
            _change(tx, held, **values)
            return _hold(tx, run_id, no)

        return await self._database.write(work)

    async def stop(self, run_id: str, no: int, now: float) -> Instance:
        def work(tx: Tx) -> Instance:
            held = _hold(tx, run_id, no)
            values: dict[str, Any] = {"halted": 1}
            if not held.agent and not held.ended:
                values |= {"state": str(InstanceState.STOPPED), "changed_at": now, "reason": ""}
            _change(tx, held, **values)
            return _hold(tx, run_id, no)

        return await self._database.write(work)

    async def report(self, agent: str, told: Sequence[ReportedInstance], now: float) -> int:
        ordered = sorted(told, key=lambda one: (one.run, one.no))

        def work(tx: Tx) -> int:
            return sum(not _note(tx, agent, one, now) for one in ordered)

        return await self._database.write(work) if ordered else 0

    async def desired(self, agent: str) -> list[DesiredInstance]:
        query = (
            sa.select(app_instances, app_runs.c.spec, app_runs.c.secrets, app_runs.c.at)
            .add_columns(runs.c.state.label("run_state"))
            .join(app_runs, app_runs.c.run == app_instances.c.run)
            .join(runs, runs.c.id == app_instances.c.run)
            .where(app_instances.c.agent == agent, app_instances.c.state.not_in(_ENDS))
            .order_by(app_instances.c.run, app_instances.c.no)
        )
        return await self._database.read(lambda c: [_desired(row) for row in c.execute(query)])

    async def add_log(self, agent: str, piece: LogPiece, limit: int, now: float) -> int:
        del now  # part of the contract: a store may record the times of pieces
        return await self._database.write(lambda tx: add_log(tx, agent, piece, limit))

    async def read_log(self, run_id: str, no: int, start: int, limit: int) -> LogPart:
        return await self._database.read(lambda c: read_log(c, run_id, no, start, limit))


def _new_row(run: str, no: int, agent: str, now: float) -> tuple[Any, ...]:
    fresh = {"state": str(InstanceState.WAITING), "agent": agent, "token": 1, "reason": ""}
    values = {"run": run, "no": no, "placed_at": now, "changed_at": now, **fresh}
    return tuple(values.get(name, 0) for name in _COLUMNS)


def _of(connection: sa.Connection, run_id: str) -> list[Instance]:
    query = sa.select(app_instances).where(app_instances.c.run == run_id)
    return [_instance(row) for row in connection.execute(query.order_by(app_instances.c.no))]


def _mine(run: str, no: int) -> sa.ColumnElement[bool]:
    return sa.and_(app_instances.c.run == run, app_instances.c.no == no)


def _hold(tx: Tx, run: str, no: int) -> Instance:
    row = tx.execute(sa.select(app_instances).where(_mine(run, no)).with_for_update()).first()
    if row is None:
        raise NotFound(f"run {run} has no instance {no}")
    return _instance(row)


def _change(tx: Tx, held: Instance, **values: Any) -> None:
    tx.execute(sa.update(app_instances).where(_mine(held.run, held.no)).values(**values))


def _placed(held: Instance, agent: str, reason: str, now: float) -> dict[str, Any]:
    return {
        "state": str(InstanceState.WAITING),
        "agent": agent,
        "token": held.token + 1,
        "begun": held.starts,
        "exit_code": None,
        "reason": _kept(reason),
        "placed_at": now,
        "changed_at": now,
        "log_next": 0,
    }


def _note(tx: Tx, agent: str, told: ReportedInstance, now: float) -> bool:
    """False when the instance is not this agent's under that token."""
    locked = sa.select(app_instances).where(_mine(told.run, told.no)).with_for_update()
    row = tx.execute(locked).first()
    if row is None or row.agent != agent or row.token != told.token:
        return False
    held = _instance(row)
    if held.ended or told.round < held.round or told.state is InstanceState.WAITING:
        return True
    values: dict[str, Any] = {
        "state": str(told.state),
        "starts": max(held.starts, row.begun + told.starts),
        "exit_code": held.exit_code if told.exit_code is None else told.exit_code,
        "reason": _kept(told.reason),
    }
    if told.state is not held.state:
        values["changed_at"] = now
    if any(getattr(row, name) != value for name, value in values.items()):
        _change(tx, held, **values)
    return True


def _kept(text: str) -> str:
    """Removes NUL, which PostgreSQL cannot store, and lone surrogates, which no database can."""
    clean = text.replace("\0", "\ufffd").encode(errors="replace").decode()
    return clean[:REASON_LIMIT]


def _instance(row: Any) -> Instance:
    values = {name: getattr(row, name) for name in Instance.__struct_fields__}
    values |= {"state": InstanceState(row.state), "halted": bool(row.halted)}
    return Instance(**values)


def _app(row: Any) -> AppRun:
    return AppRun(row.run, _spec.decode(row.spec), _names.decode(row.secrets), row.at)


def _desired(row: Any) -> DesiredInstance:
    instance = _instance(row)
    wanted = desired_state_for(RunState(row.run_state), instance.halted)
    return DesiredInstance(instance, _app(row), wanted)
