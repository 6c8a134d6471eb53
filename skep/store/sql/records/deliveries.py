"""Delivery of items into sinks. Implements `Deliveries` of `store/ports/deliveries.py`.

Run by centers only. The lease of a row fences: a center that lost it cannot change the position.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from skep.errors import LostLease
from skep.model.delivery import (
    Delivery,
    DeliveryLease,
    DeliveryState,
    DeliveryView,
    RejectedItem,
)
from skep.model.states import RunState
from skep.store.ports.checkpoints import KeptItem
from skep.store.sql.engine.database import Database, Tx
from skep.store.sql.records import rejected_items as rejected
from skep.store.sql.schema.deliveries import deliveries, rejected_items
from skep.store.sql.schema.runs import items, runs

#: Pending items are counted up to this number.
COUNTED = 100_000
ERROR_LIMIT = 2000
_ENDED = (str(RunState.FINISHED), str(RunState.CANCELLED))
_OPEN = str(DeliveryState.OPEN)
_COLUMNS = tuple(column.name for column in deliveries.columns)
_RELEASED = {"holder": "", "held_until": 0.0}

#: Open deliveries that have failed or whose run has ended.
UNFINISHED: tuple[sa.ColumnElement[bool], ...] = (
    deliveries.c.state == _OPEN,
    sa.or_(
        deliveries.c.tries > 0,
        sa.exists().where(runs.c.id == deliveries.c.run, runs.c.state.in_(_ENDED)),
    ),
)


class SqlDeliveries:
    """Rows of `deliveries` and `rejected_items`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def open(self, new: Sequence[Delivery], now: float) -> None:
        def work(tx: Tx) -> None:
            for one in new:
                if not _inserted(tx, one):
                    again = _same(one.run, one.sink), deliveries.c.state != "given_up"
                    values = {"state": _OPEN, "again_at": 0.0, "changed_at": now}
                    tx.execute(sa.update(deliveries).where(*again).values(**values))

        await self._database.write(work)

    async def adopt(self, new: Delivery) -> None:
        def work(tx: Tx) -> None:
            if _inserted(tx, new):
                return
            behind = _same(new.run, new.sink), deliveries.c.position < new.position
            change = sa.update(deliveries).where(*behind)
            tx.execute(change.values(position=new.position, lease=deliveries.c.lease + 1))

        await self._database.write(work)

    async def claim(self, holder: str, now: float, until: float, limit: int) -> list[Delivery]:
        mine = sa.and_(deliveries.c.holder == holder, deliveries.c.state == _OPEN)

        def work(tx: Tx) -> list[Delivery]:
            tx.execute(sa.update(deliveries).where(mine).values(held_until=until))
            held = [_delivery(row) for row in tx.execute(sa.select(deliveries).where(mine))]
            return held + _taken(tx, holder, now, until, limit - len(held))

        return await self._database.write(work)

    async def look(self, lease: DeliveryLease) -> tuple[RunState | None, bool]:
        def work(connection: sa.Connection) -> tuple[RunState | None, bool]:
            state = sa.select(runs.c.state).where(runs.c.id == lease.run).scalar_subquery()
            query = sa.select(state.label("run_state"), rejected.waits(lease.run, lease.sink))
            row = connection.execute(query.where(_holds(lease)).select_from(deliveries)).first()
            if row is None:
                raise _lost(lease)
            return RunState(row[0]) if row[0] else None, bool(row[1])

        return await self._database.read(work)

    async def save(self, lease: DeliveryLease, position: int, added: int, now: float) -> None:
        values = {"position": position, "delivered": deliveries.c.delivered + added}
        well = {"tries": 0, "error": "", "changed_at": now}
        await self._change(lease, **values, **well)

    async def failed(self, lease: DeliveryLease, error: str, again_at: float, now: float) -> None:
        told = {"error": _kept(error), "error_at": now, "tries": deliveries.c.tries + 1}
        await self._change(lease, again_at=again_at, **told, **_RELEASED)

    async def rest(self, lease: DeliveryLease, again_at: float) -> None:
        await self._change(lease, again_at=again_at, **_RELEASED)

    async def done(self, lease: DeliveryLease, now: float) -> bool:
        def work(tx: Tx) -> bool:
            check(tx, lease)
            if tx.execute(sa.select(rejected.waits(lease.run, lease.sink))).scalar():
                return False
            closed = {"state": str(DeliveryState.DONE), "changed_at": now, "error": "", "tries": 0}
            tx.execute(_update(lease).values(**closed, **_RELEASED))
            return True

        return await self._database.write(work)

    async def release(self, holder: str) -> None:
        change = sa.update(deliveries).where(deliveries.c.holder == holder).values(**_RELEASED)
        await self._database.write(lambda tx: tx.execute(change) and None)

    async def of(self, run: str) -> list[DeliveryView]:
        query = sa.select(deliveries).where(deliveries.c.run == run).order_by(deliveries.c.sink)
        return await self._database.read(
            lambda c: [delivery_view(c, row) for row in c.execute(query)]
        )

    async def unfinished(self, limit: int) -> list[DeliveryView]:
        query = sa.select(deliveries).where(*UNFINISHED)
        query = query.order_by(deliveries.c.changed_at, deliveries.c.run).limit(limit)
        return await self._database.read(
            lambda c: [delivery_view(c, row) for row in c.execute(query)]
        )

    async def decide(self, run: str, sink: str, state: DeliveryState, now: float) -> list[Delivery]:
        def work(tx: Tx) -> list[Delivery]:
            changed = []
            for row in tx.execute(_of_run(run, sink).with_for_update()).all():
                if state is DeliveryState.OPEN or row.state == _OPEN:
                    tx.execute(_decision(row, state, now))
                    changed.append((row.run, row.sink))
            return [_get(tx.connection, *key) for key in changed]

        return await self._database.write(work)

    async def reject(self, lease: DeliveryLease, item: int, reason: str, now: float) -> None:
        def work(tx: Tx) -> None:
            check(tx, lease)
            rejected.reject(tx, lease, item, _kept(reason), now)

        await self._database.write(work)

    async def rejected(self, run: str, after: int, limit: int) -> list[RejectedItem]:
        return await self._database.read(lambda c: rejected.listed(c, run, after, limit))

    async def resend(self, run: str, sink: str, numbers: Sequence[int], now: float) -> int:
        def work(tx: Tx) -> int:
            count = 0
            for row in tx.execute(_of_run(run, sink).with_for_update()).all():
                added = rejected.give_tickets(tx, row, numbers)
                if added:
                    due = {"state": _OPEN, "again_at": 0.0, "resends": row.resends + added}
                    change = sa.update(deliveries).where(_same(row.run, row.sink))
                    tx.execute(change.values(changed_at=now, **due))
                count += added
            return count

        return await self._database.write(work)

    async def to_resend(
        self, lease: DeliveryLease, limit: int
    ) -> list[tuple[RejectedItem, KeptItem | None]]:
        return await self._database.read(lambda c: rejected.with_tickets(c, lease, limit))

    async def resent(self, lease: DeliveryLease, no: int, reason: str, now: float) -> None:
        def work(tx: Tx) -> None:
            check(tx, lease)
            rejected.resent(tx, lease, no, _kept(reason), now)

        await self._database.write(work)

    async def _change(self, lease: DeliveryLease, **values: Any) -> None:
        def work(tx: Tx) -> None:
            if not tx.execute(_update(lease).values(**values)).rowcount:
                raise _lost(lease)

        await self._database.write(work)


def check(tx: Tx, lease: DeliveryLease) -> None:
    """Raises LostLease. No other center can take the row before the transaction ends."""
    held = sa.select(deliveries.c.run).where(_holds(lease)).with_for_update()
    if tx.execute(held).first() is None:
        raise _lost(lease)


def open_delivery(run: sa.ColumnElement[Any]) -> sa.ColumnElement[bool]:
    """Whether the run with this id still has items to deliver."""
    return sa.exists().where(deliveries.c.run == run, deliveries.c.state == _OPEN)


def _holds(lease: DeliveryLease) -> sa.ColumnElement[bool]:
    return sa.and_(
        _same(lease.run, lease.sink),
        deliveries.c.holder == lease.holder,
        deliveries.c.lease == lease.number,
        deliveries.c.state == _OPEN,
    )


def _update(lease: DeliveryLease) -> sa.Update:
    return sa.update(deliveries).where(_holds(lease))


def _same(run: str, sink: str) -> sa.ColumnElement[bool]:
    return sa.and_(deliveries.c.run == run, deliveries.c.sink == sink)


def _of_run(run: str, sink: str) -> sa.Select[Any]:
    query = sa.select(deliveries).where(deliveries.c.run == run)
    query = query.where(deliveries.c.sink == sink) if sink else query
    return query.order_by(deliveries.c.sink)


def _decision(row: Any, state: DeliveryState, now: float) -> sa.Update:
    values: dict[str, Any] = {"state": str(state), "again_at": 0.0, "tries": 0, "changed_at": now}
    if state is not DeliveryState.OPEN:
        # A center that is delivering is fenced out.
        values |= {**_RELEASED, "lease": row.lease + 1}
    return sa.update(deliveries).where(_same(row.run, row.sink)).values(**values)


def _inserted(tx: Tx, new: Delivery) -> bool:
    values = msgspec.structs.asdict(new) | {"state": str(new.state)}
    row = tuple(values[name] for name in _COLUMNS)
    return bool(tx.dialect.insert_new(tx.connection, deliveries, _COLUMNS, [row]))


def _taken(tx: Tx, holder: str, now: float, until: float, limit: int) -> list[Delivery]:
    """Open deliveries that are due and that no center holds, longest due first."""
    if limit <= 0:
        return []
    c = deliveries.c
    free = (
        sa.select(deliveries)
        .where(c.state == _OPEN, c.held_until < now, c.again_at <= now)
        .order_by(c.again_at, c.run, c.sink)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    rows = tx.execute(free).all()
    for row in rows:
        change = sa.update(deliveries).where(_same(row.run, row.sink))
        tx.execute(change.values(holder=holder, held_until=until, lease=row.lease + 1))
    return [_get(tx.connection, row.run, row.sink) for row in rows]


def _get(connection: sa.Connection, run: str, sink: str) -> Delivery:
    return _delivery(connection.execute(sa.select(deliveries).where(_same(run, sink))).one())


def delivery_view(connection: sa.Connection, row: Any) -> DeliveryView:
    """A delivery from its row, with its counts."""
    number = sa.select(runs.c.no).where(runs.c.id == row.run).scalar_subquery()
    left = sa.select(items.c.id).where(items.c.run == number, items.c.id > row.position)
    pending = sa.select(sa.func.count()).select_from(left.limit(COUNTED).subquery())
    theirs = rejected_items.c.run == row.run, rejected_items.c.sink == row.sink
    refused = sa.select(sa.func.count()).select_from(rejected_items).where(*theirs)
    counts = [int(connection.execute(query).scalar_one()) for query in (pending, refused)]
    return DeliveryView(_delivery(row), *counts)


def _delivery(row: Any) -> Delivery:
    values = {name: getattr(row, name) for name in _COLUMNS}
    return Delivery(**{**values, "state": DeliveryState(row.state)})


def _kept(text: str) -> str:
    """Removes NUL, which PostgreSQL cannot store, and lone surrogates, which no database can."""
    clean = text.replace("\0", "\ufffd").encode(errors="replace").decode()
    return clean[:ERROR_LIMIT]


def _lost(lease: DeliveryLease) -> LostLease:
    return LostLease(
        f"center {lease.holder} no longer delivers the items of run {lease.run} to sink"
        f" {lease.sink}"
    )
