"""Leases of work that only one center should do, with a fencing token. Centers only."""

from __future__ import annotations

import sqlalchemy as sa

from skep.errors import LostLease
from skep.store.ports.monitoring import MonitorLease
from skep.store.sql.engine.database import Tx
from skep.store.sql.schema.monitoring import monitor_leases as leases

_COLUMNS = ("name", "holder", "token", "held_until")


def take_lease(tx: Tx, name: str, holder: str, now: float, until: float) -> MonitorLease | None:
    """Take or renew it; None while another center holds it. A time of expiry far in the future
    was written by a center with a wrong clock: it does not count."""
    if tx.dialect.insert_new(tx.connection, leases, _COLUMNS, [(name, holder, 1, until)]):
        return MonitorLease(name, holder, 1)
    query = sa.select(leases).where(leases.c.name == name).with_for_update()
    row = tx.execute(query).one()
    if row.holder != holder and now <= row.held_until < now + 2 * (until - now):
        return None
    token = row.token + (row.holder != holder)
    values = {"holder": holder, "token": token, "held_until": until}
    tx.execute(sa.update(leases).where(leases.c.name == name).values(**values))
    return MonitorLease(name, holder, token)


def check_monitor_lease(tx: Tx, lease: MonitorLease) -> None:
    """Raises LostLease. No other center can take it before the transaction ends."""
    held = sa.and_(
        leases.c.name == lease.name,
        leases.c.holder == lease.holder,
        leases.c.token == lease.token,
    )
    if tx.execute(sa.select(leases.c.token).where(held).with_for_update()).first() is None:
        raise LostLease(f"{lease.name} is no longer held by center {lease.holder}")
