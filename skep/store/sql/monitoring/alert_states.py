"""Alert rules, and the states of alerts. Implements `AlertRules` and `AlertStates`. Centers only.

A change of state marks its row as untold; the transaction that posts its notices removes the mark.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from skep.errors import Conflict, NotFound
from skep.model.jobs.notice import Notice
from skep.model.monitoring.alerts import (
    DETAIL_LIMIT,
    SUBJECT_LIMIT,
    Alert,
    AlertChange,
    AlertRule,
)
from skep.store.ports.monitoring import MonitorLease
from skep.store.sql.engine.database import Database, Tx
from skep.store.sql.monitoring.leases import check_monitor_lease
from skep.store.sql.schema.ended_work import notices as outbox
from skep.store.sql.schema.monitoring import alert_rules
from skep.store.sql.schema.records import alerts

_COLUMNS = Alert.__struct_fields__
_ROW = (*_COLUMNS, "untold")
_NOTICE = Notice.__struct_fields__
_rule = msgspec.msgpack.Decoder(AlertRule)


class SqlAlertRules:
    """Rows of `alert_rules`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def all(self) -> dict[str, AlertRule]:
        query = sa.select(alert_rules).order_by(alert_rules.c.name)
        rows = await self._database.read(lambda c: c.execute(query).all())
        found: dict[str, AlertRule] = {}
        for row in rows:
            try:
                found[row.name] = _rule.decode(bytes(row.body))
            except msgspec.DecodeError:  # a newer version of Skep wrote it
                continue
        return found

    async def save(self, name: str, rule: AlertRule, limit: int, now: float) -> None:
        values = {"body": msgspec.msgpack.encode(rule), "changed_at": now}

        def work(tx: Tx) -> None:
            known = alert_rules.c.name == name
            there = tx.execute(sa.select(alert_rules.c.name).where(known)).first()
            if there is not None:
                tx.execute(sa.update(alert_rules).where(known).values(**values))
                return
            count = tx.execute(sa.select(sa.func.count()).select_from(alert_rules)).scalar_one()
            if count >= limit:
                raise Conflict(f"there are {limit} alert rules already; delete one first")
            tx.execute(sa.insert(alert_rules).values(name=name, **values))

        await self._database.write(work)

    async def delete(self, name: str) -> bool:
        change = sa.delete(alert_rules).where(alert_rules.c.name == name)
        return await self._database.write(lambda tx: bool(tx.execute(change).rowcount))


class SqlAlertStates:
    """Rows of `alerts`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def find(self, states: Sequence[str], limit: int) -> list[Alert]:
        query = sa.select(alerts).order_by(alerts.c.last_at.desc(), alerts.c.kind, alerts.c.subject)
        if states:
            query = query.where(alerts.c.state.in_(states))
        return await self._read(query.limit(limit))

    async def untold(self, limit: int) -> list[Alert]:
        query = sa.select(alerts).where(alerts.c.untold == 1).order_by(alerts.c.changed_at)
        return await self._read(query.limit(limit))

    async def _read(self, query: sa.Select[Any]) -> list[Alert]:
        return await self._database.read(lambda c: [alert_in(row) for row in c.execute(query)])

    async def apply(self, lease: MonitorLease, changes: Sequence[AlertChange], now: float) -> int:
        def work(tx: Tx) -> int:
            check_monitor_lease(tx, lease)
            return sum(apply_change(tx, change, now) for change in changes)

        return await self._database.write(work)

    async def acknowledge(self, kind: str, subject: str, by: str, now: float) -> Alert:
        return await self._set(kind, subject, acknowledged_at=now, acknowledged_by=by[:100])

    async def mute(self, kind: str, subject: str, until: float) -> Alert:
        return await self._set(kind, subject, muted_until=until)

    async def _set(self, kind: str, subject: str, **values: Any) -> Alert:
        def work(tx: Tx) -> Alert:
            change = sa.update(alerts).where(_is(kind, subject)).values(**values)
            tx.execute(change)
            row = tx.execute(sa.select(alerts).where(_is(kind, subject))).first()
            if row is None:
                raise NotFound(
                    f"there is no alert {kind!r} of {subject!r}; `skep alerts` lists them"
                )
            return alert_in(row)

        return await self._database.write(work)

    async def tell(
        self, lease: MonitorLease, told: Sequence[Alert], notices: Sequence[Notice]
    ) -> None:
        rows = [tuple(getattr(notice, name) for name in _NOTICE) for notice in notices]

        def work(tx: Tx) -> None:
            check_monitor_lease(tx, lease)
            tx.dialect.insert_new(tx.connection, outbox, _NOTICE, rows)
            for one in told:
                same = sa.and_(_is(one.kind, one.subject), alerts.c.changes == one.changes)
                tx.execute(sa.update(alerts).where(same).values(untold=0))

        await self._database.write(work)

    async def expire(self, lease: MonitorLease, quiet: float, delete: float) -> int:
        firing = sa.and_(alerts.c.state == "firing", alerts.c.by_rule == 0)
        over = sa.update(alerts).where(firing, alerts.c.last_at < quiet)
        old = sa.and_(alerts.c.state == "resolved", alerts.c.last_at < delete)

        def work(tx: Tx) -> int:
            check_monitor_lease(tx, lease)
            changed = tx.execute(over.values(state="resolved", changed_at=quiet, untold=0)).rowcount
            return int(changed + tx.execute(sa.delete(alerts).where(old)).rowcount)

        return await self._database.write(work)


def apply_change(tx: Tx, change: AlertChange, now: float) -> bool:
    """Start or end an alert; True when its state changed."""
    subject, detail = change.subject[:SUBJECT_LIMIT], change.detail[:DETAIL_LIMIT]
    query = sa.select(alerts).where(_is(change.kind, subject)).with_for_update()
    row = tx.execute(query).first()
    untold = int(change.notify)
    if row is None:
        if change.state == "resolved":
            return False
        new = Alert(change.kind, subject, detail, 1, now, now, "firing", change.severity, True, now)
        tx.dialect.insert_new(tx.connection, alerts, _ROW, [(*_values(new), untold)])
        return True
    moves = bool(row.state != change.state)
    values: dict[str, Any] = {"detail": detail, "severity": change.severity, "by_rule": 1}
    if moves:
        values |= {"state": change.state, "changed_at": now, "untold": untold}
        values |= {"changes": row.changes + 1, "acknowledged_at": 0.0, "acknowledged_by": ""}
        values |= {"last_at": now, "times": row.times + (change.state == "firing")}
    tx.execute(sa.update(alerts).where(_is(change.kind, subject)).values(**values))
    return moves


def _values(alert: Alert) -> tuple[Any, ...]:
    values = (getattr(alert, name) for name in _COLUMNS)
    return tuple(int(value) if isinstance(value, bool) else value for value in values)


def _is(kind: str, subject: str) -> sa.ColumnElement[bool]:
    return sa.and_(alerts.c.kind == kind, alerts.c.subject == subject)


def alert_in(row: Any) -> Alert:
    """An alert from its row."""
    values = {name: getattr(row, name) for name in _COLUMNS}
    return Alert(**{**values, "by_rule": bool(row.by_rule)})
