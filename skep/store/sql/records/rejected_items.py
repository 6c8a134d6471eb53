"""Items that a sink refused: stored with the reason, sent again on request.

Run by centers only, in transactions of `deliveries.py`, which checks the lease first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from skep.model.delivery import DeliveryLease, RejectedItem
from skep.store.ports.checkpoints import KeptItem
from skep.store.sql.engine.database import Tx
from skep.store.sql.engine.predicates import in_list
from skep.store.sql.schema.deliveries import rejected_items as table
from skep.store.sql.schema.runs import items

_COLUMNS = ("run", "sink", "item", "reason", "at", "tries", "ticket")
_FIELDS = RejectedItem.__struct_fields__


def waits(run: str, sink: str) -> sa.ColumnElement[bool]:
    """Whether refused items of this sink wait to be sent again."""
    return sa.exists().where(_of(run, sink), table.c.ticket > 0)


def reject(tx: Tx, lease: DeliveryLease, item: int, reason: str, now: float) -> None:
    row = (lease.run, lease.sink, item, reason, now, 1, 0)
    if not tx.dialect.insert_new(tx.connection, table, _COLUMNS, [row]):
        same = _of(lease.run, lease.sink), table.c.item == item
        values = {"reason": reason, "at": now, "tries": table.c.tries + 1}
        tx.execute(sa.update(table).where(*same).values(**values))


def listed(connection: sa.Connection, run: str, after: int, limit: int) -> list[RejectedItem]:
    query = sa.select(table).where(table.c.run == run, table.c.no > after)
    return [_rejected(row) for row in connection.execute(query.order_by(table.c.no).limit(limit))]


def give_tickets(tx: Tx, delivery: Any, numbers: Sequence[int]) -> int:
    """Numbers in the order of the items, after the last ticket ever given: a sink that stores its
    position must never get a number twice."""
    query = sa.select(table.c.no).where(_of(delivery.run, delivery.sink), table.c.ticket == 0)
    if numbers:
        query = query.where(in_list(table.c.no, numbers))
    found = tx.execute(query.order_by(table.c.item)).scalars().all()
    for ticket, no in enumerate(found, delivery.resends + 1):
        tx.execute(sa.update(table).where(table.c.no == no).values(ticket=ticket))
    return len(found)


def with_tickets(
    connection: sa.Connection, lease: DeliveryLease, limit: int
) -> list[tuple[RejectedItem, KeptItem | None]]:
    columns = (items.c.id.label("item_id"), items.c.request, items.c.data)
    query = sa.select(table, *columns).outerjoin(items, items.c.id == table.c.item)
    query = query.where(_of(lease.run, lease.sink), table.c.ticket > 0)
    rows = connection.execute(query.order_by(table.c.ticket).limit(limit))
    return [(_rejected(row), _item(row)) for row in rows]


def resent(tx: Tx, lease: DeliveryLease, no: int, reason: str, now: float) -> None:
    same = _of(lease.run, lease.sink), table.c.no == no
    if reason:
        values = {"reason": reason, "at": now, "tries": table.c.tries + 1, "ticket": 0}
        tx.execute(sa.update(table).where(*same).values(**values))
    else:
        tx.execute(sa.delete(table).where(*same))


def _of(run: str, sink: str) -> sa.ColumnElement[bool]:
    return sa.and_(table.c.run == run, table.c.sink == sink)


def _rejected(row: Any) -> RejectedItem:
    return RejectedItem(**{name: getattr(row, name) for name in _FIELDS})


def _item(row: Any) -> KeptItem | None:
    return None if row.item_id is None else KeptItem(row.item_id, row.request, row.data)
