"""The driver of a run: its token, its last call, and commands for it.

Run by centers only. Part of `CheckpointStore`; the token decides which process is the driver, and
is locked for the length of every transaction that checks it.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from skep.errors import Conflict, StaleToken
from skep.model.states import RunState
from skep.store.ports.checkpoints import DriverRequests
from skep.store.sql.engine.database import Tx
from skep.store.sql.requests.cancel import cancel_open
from skep.store.sql.runs.runs import move_run, number_of, row_of
from skep.store.sql.schema.runs import drivers, runs

#: Age in seconds after which the time of the driver's last call is written again.
HEARD_EVERY = 5.0


def take_over(tx: Tx, run_id: str, patience: float, now: float) -> int:
    """Returns the token of a new driver."""
    run = number_of(tx.connection, run_id)
    tx.dialect.insert_new(tx.connection, drivers, ("run", "token"), [(run, 0)])
    token = int(_driver(tx, run).token) + 1
    values = {"token": token, "heard_at": now, "patience": patience, "asked": None}
    tx.execute(sa.update(drivers).where(drivers.c.run == run).values(**values))
    return token


def check_driver(tx: Tx, run: int, driver: int, now: float) -> None:
    """Raises StaleToken when another driver took over; records the call otherwise."""
    row = _driver(tx, run)
    newest = row.token if row else 0
    if driver != newest:
        raise StaleToken(
            f"driver {driver} was replaced by driver {newest}; stop, and take the run over again"
        )
    if row and now - (row.heard_at or 0.0) > HEARD_EVERY:
        tx.execute(sa.update(drivers).where(drivers.c.run == run).values(heard_at=now))


def end(tx: Tx, run_id: str, driver: int, to: RunState, reason: str, now: float) -> None:
    """The driver ends its run. The same transaction ends all requests of a finished run."""
    run = number_of(tx.connection, run_id)
    check_driver(tx, run, driver, now)
    tx.execute(sa.update(drivers).where(drivers.c.run == run).values(patience=None, asked=None))
    moved = move_run(tx, run_id, to, reason, now)
    if moved.state is RunState.FINISHED:
        cancel_open(tx, run, now, "the run was finished")


def ask(tx: Tx, run_id: str, what: str) -> None:
    """Store a command for the driver; raises Conflict when there is no driver."""
    run = row_of(tx.connection, run_id)
    wanted = sa.and_(drivers.c.run == run.no, drivers.c.patience.is_not(None))
    if not tx.execute(sa.update(drivers).where(wanted).values(asked=what)).rowcount:
        raise Conflict(f"run {run_id} is {run.state} and no process drives it; start it again")


def orders(connection: sa.Connection, run_id: str) -> DriverRequests:
    """The state of a run and the command for its driver."""
    query = sa.select(runs.c.state, runs.c.reason, drivers.c.asked)
    query = query.outerjoin(drivers, drivers.c.run == runs.c.no).where(runs.c.id == run_id)
    row = connection.execute(query).first()
    if row is None:
        row_of(connection, run_id)  # raises
        return DriverRequests(RunState.RUNNING)
    return DriverRequests(RunState(row.state), row.reason or "", row.asked or "")


def silent(connection: sa.Connection, now: float) -> list[str]:
    """Running runs whose driver has timed out."""
    query = (
        sa.select(runs.c.id)
        .join(drivers, drivers.c.run == runs.c.no)
        .where(runs.c.state == str(RunState.RUNNING), drivers.c.patience > 0)
        .where(drivers.c.heard_at + drivers.c.patience < now)
        .order_by(runs.c.no)
    )
    return list(connection.execute(query).scalars())


def give_up(tx: Tx, run_id: str, now: float) -> bool:
    """Fail a run whose driver has timed out; False when it called meanwhile."""
    run = row_of(tx.connection, run_id)
    row = _driver(tx, run.no)
    late = row and row.patience and row.heard_at is not None and row.heard_at + row.patience < now
    if not late or run.state != RunState.RUNNING:
        return False
    reason = f"driver silent: no call from its process for {now - row.heard_at:.0f} s"
    move_run(
        tx, run_id, RunState.FAILED, f"{reason}; it hangs, was killed or lost its connection", now
    )
    tx.execute(sa.update(drivers).where(drivers.c.run == run.no).values(patience=None))
    return True


def _driver(tx: Tx, run: int) -> Any:
    query = sa.select(drivers).where(drivers.c.run == run).with_for_update()
    return tx.execute(query).first()
