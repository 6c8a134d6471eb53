"""The driver of a run: who speaks for it, when it was last heard, what is asked of it.

Run by centers only. Part of `Turns`; the token decides who the driver is, and is locked for
the length of every transaction that asks for it.
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

#: A sign of life is written when the last one is older, in seconds.
HEARD_EVERY = 5.0


def take_over(tx: Tx, run_id: str, patience: float, now: float) -> int:
    """A new driver's token."""
    run = number_of(tx.connection, run_id)
    tx.dialect.insert_new(tx.connection, drivers, ("run", "token"), [(run, 0)])
    token = int(_driver(tx, run).token) + 1
    values = {"token": token, "heard_at": now, "patience": patience, "asked": None}
    tx.execute(sa.update(drivers).where(drivers.c.run == run).values(**values))
    return token


def check_driver(tx: Tx, run: int, driver: int, now: float) -> None:
    """Raises StaleToken when another one took over; notes the sign of life otherwise."""
    row = _driver(tx, run)
    newest = row.token if row else 0
    if driver != newest:
        raise StaleToken(
            f"driver {driver} was replaced by driver {newest}; stop, and take the run over again"
        )
    if row and now - (row.heard_at or 0.0) > HEARD_EVERY:
        tx.execute(sa.update(drivers).where(drivers.c.run == run).values(heard_at=now))


def end(tx: Tx, run_id: str, driver: int, to: RunState, reason: str, now: float) -> None:
    """The driver's last word. A finished run leaves nothing open, by the same transaction."""
    run = number_of(tx.connection, run_id)
    check_driver(tx, run, driver, now)
    tx.execute(sa.update(drivers).where(drivers.c.run == run).values(patience=None, asked=None))
    moved = move_run(tx, run_id, to, reason, now)
    if moved.state is RunState.FINISHED:
        cancel_open(tx, run, now, "the run was finished")


def ask(tx: Tx, run_id: str, what: str) -> None:
    """Leave a word for the driver; raises Conflict when there is none that could hear it."""
    run = row_of(tx.connection, run_id)
    wanted = sa.and_(drivers.c.run == run.no, drivers.c.patience.is_not(None))
    if not tx.execute(sa.update(drivers).where(wanted).values(asked=what)).rowcount:
        raise Conflict(f"run {run_id} is {run.state} and no process drives it; start it again")


def orders(connection: sa.Connection, run_id: str) -> DriverRequests:
    """What the driver of a run should know at once."""
    query = sa.select(runs.c.state, runs.c.reason, drivers.c.asked)
    query = query.outerjoin(drivers, drivers.c.run == runs.c.no).where(runs.c.id == run_id)
    row = connection.execute(query).first()
    if row is None:
        row_of(connection, run_id)  # raises
        return DriverRequests(RunState.RUNNING)
    return DriverRequests(RunState(row.state), row.reason or "", row.asked or "")


def silent(connection: sa.Connection, now: float) -> list[str]:
    """Running runs whose driver has not been heard of for longer than it said."""
    query = (
        sa.select(runs.c.id)
        .join(drivers, drivers.c.run == runs.c.no)
        .where(runs.c.state == str(RunState.RUNNING), drivers.c.patience > 0)
        .where(drivers.c.heard_at + drivers.c.patience < now)
        .order_by(runs.c.no)
    )
    return list(connection.execute(query).scalars())


def give_up(tx: Tx, run_id: str, now: float) -> bool:
    """Fail a run whose driver is silent; False when it spoke meanwhile."""
    run = row_of(tx.connection, run_id)
    row = _driver(tx, run.no)
    late = row and row.patience and row.heard_at is not None and row.heard_at + row.patience < now
    if not late or run.state != RunState.RUNNING:
        return False
    reason = f"driver silent: its process was not heard of for {now - row.heard_at:.0f} s"
    move_run(tx, run_id, RunState.FAILED, f"{reason}; it hangs, was killed or is cut off", now)
    tx.execute(sa.update(drivers).where(drivers.c.run == run.no).values(patience=None))
    return True


def _driver(tx: Tx, run: int) -> Any:
    query = sa.select(drivers).where(drivers.c.run == run).with_for_update()
    return tx.execute(query).first()
