"""Failure groups as rows. Implements `FailureGroups`. Run by centers only.

The transaction in which requests die or are retried adds to the counts (`death_counts.py`). One
center follows the changed rows: it writes their history and reopens groups that return.
"""

from __future__ import annotations

from typing import Any

import msgspec
import sqlalchemy as sa

from skep.errors import InvalidInput
from skep.model.failures.failure_fingerprint import group_name, parse_group
from skep.model.monitoring.alerts import RETURNED, AlertChange
from skep.model.monitoring.buckets import bucket
from skep.model.monitoring.failure_groups import (
    DAYS,
    HOURS,
    OTHER_HOSTS,
    GroupHistory,
    GroupQuery,
    GroupState,
    KeptGroup,
)
from skep.model.unknown_objects import unknown_group
from skep.store.ports.monitoring import MonitorLease, Returned
from skep.store.sql.engine.database import Database, Tx
from skep.store.sql.monitoring.alert_states import apply_change
from skep.store.sql.monitoring.leases import check_monitor_lease
from skep.store.sql.schema.ended_work import faults
from skep.store.sql.schema.monitoring import failure_groups as groups

HOUR, DAY = 3600, 86_400
_COUNTS = ("fault", "host", "died", "gone", "first_at", "last_at", "fresh", "counted")
_history = msgspec.msgpack.Decoder(GroupHistory)


class SqlFailureGroups:
    """Rows of `failure_groups`, with the words of `faults`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def find(self, wanted: GroupQuery) -> list[KeptGroup]:
        query = _with_words()
        if wanted.state:
            query = query.where(groups.c.state == wanted.state)
        if wanted.host:
            query = query.where(groups.c.host == wanted.host)
        if wanted.failure:
            query = query.where(faults.c.failure == wanted.failure)
        if wanted.before is not None:
            query = query.where(_after(*wanted.before))
        order = (groups.c.last_at.desc(), groups.c.fault, groups.c.host)
        query = query.order_by(*order).limit(wanted.limit)
        return await self._database.read(lambda c: [group_in(row) for row in c.execute(query)])

    async def get(self, group: str) -> tuple[KeptGroup, GroupHistory]:
        query = _with_words().where(_named(group))
        row = await self._database.read(lambda c: c.execute(query).first())
        if row is None:
            raise unknown_group(group)
        return group_in(row), _history_of(row.history)

    async def change(
        self, group: str, state: GroupState, note: str | None, by: str, now: float
    ) -> KeptGroup:
        values: dict[str, Any] = {"state": state, "changed_at": now, "changed_by": by[:100]}
        if note is not None:
            values["note"] = note
        # Requests that died before this moment do not count as a return of the failure.
        values |= {"counted": groups.c.died} if state == "resolved" else {}

        def work(tx: Tx) -> KeptGroup:
            _count_new(tx, _named(group), now)
            tx.execute(sa.update(groups).where(_named(group)).values(**values))
            row = tx.execute(_with_words().where(_named(group))).first()
            if row is None:
                raise unknown_group(group)
            if state != "open":
                over = AlertChange(
                    RETURNED, group_in(row).group, "resolved", f"the group is {state}"
                )
                apply_change(tx, over, now)
            return group_in(row)

        return await self._database.write(work)

    async def follow(
        self, lease: MonitorLease, now: float, limit: int
    ) -> tuple[int, list[Returned]]:
        def work(tx: Tx) -> tuple[int, list[Returned]]:
            check_monitor_lease(tx, lease)
            query = _with_words().where(groups.c.fresh == 1).limit(limit)
            rows = tx.execute(query.with_for_update(of=groups)).all()
            back = [row for row in rows if row.state == "resolved" and row.died > row.counted]
            for row in rows:
                _write_history(tx, row, now)
            return len(rows), [_reopen(tx, row, now) for row in back]

        return await self._database.write(work)

    async def trim(self, lease: MonitorLease, keep: int, before: float, limit: int) -> int:
        def work(tx: Tx) -> int:
            check_monitor_lease(tx, lease)
            plain = sa.and_(
                groups.c.state == "open", groups.c.note == "", groups.c.host != OTHER_HOSTS
            )
            newest = sa.select(groups.c.last_at).order_by(groups.c.last_at.desc())
            last_kept = tx.execute(newest.offset(keep).limit(1)).scalar()
            old = groups.c.last_at < before
            if last_kept is not None:
                old = sa.or_(old, sa.and_(plain, groups.c.last_at <= last_kept))
            query = sa.select(groups).where(old).order_by(groups.c.last_at).limit(limit)
            return _drop(tx, tx.execute(query.with_for_update()).all())

        return await self._database.write(work)


def _with_words() -> sa.Select[Any]:
    words = (faults.c.failure, faults.c.status, faults.c.text)
    return sa.select(groups, *words).outerjoin(faults, faults.c.id == groups.c.fault)


def _named(group: str) -> sa.ColumnElement[bool]:
    try:
        fault, host = parse_group(group)
    except ValueError as error:
        raise InvalidInput(str(error)) from error
    return sa.and_(groups.c.fault == fault, groups.c.host == (host or ""))


def _after(last_at: float, group: str) -> sa.ColumnElement[bool]:
    try:
        fault, host = parse_group(group)
    except ValueError as error:
        raise InvalidInput(str(error)) from error
    same = groups.c.last_at == last_at
    further = sa.or_(
        groups.c.fault > fault, sa.and_(groups.c.fault == fault, groups.c.host > (host or ""))
    )
    return sa.or_(groups.c.last_at < last_at, sa.and_(same, further))


def group_in(row: Any) -> KeptGroup:
    """A row with the words of its fault."""
    return KeptGroup(
        group_name(row.fault, row.host),
        row.host,
        row.failure or "",
        row.status or 0,
        row.text or "",
        int(row.died),
        max(int(row.died - row.gone), 0),
        row.first_at,
        row.last_at,
        row.state,
        row.note,
        row.changed_at,
        row.changed_by,
        row.reopened,
    )


def _history_of(packed: bytes | None) -> GroupHistory:
    return GroupHistory() if packed is None else _history.decode(bytes(packed))


def _count_new(tx: Tx, which: sa.ColumnElement[bool], now: float) -> None:
    row = tx.execute(sa.select(groups).where(which).with_for_update()).first()
    if row is not None:
        _write_history(tx, row, now)


def _write_history(tx: Tx, row: Any, now: float) -> None:
    """Add the deaths since the last time to the hour and the day of the last one."""
    history, new = _history_of(row.history), int(row.died - row.counted)
    if new > 0:
        # By the clock of the deaths, unless it was ahead.
        at = min(row.last_at, now)
        history.hours = _counted(history.hours, bucket(at, HOUR), new, HOURS)
        history.days = _counted(history.days, bucket(at, DAY), new, DAYS)
    same = sa.and_(groups.c.fault == row.fault, groups.c.host == row.host)
    values = {"history": msgspec.msgpack.encode(history), "counted": row.died, "fresh": 0}
    tx.execute(sa.update(groups).where(same).values(**values))


def _counted(counts: dict[int, int], at: int, n: int, kept: int) -> dict[int, int]:
    counts[at] = counts.get(at, 0) + n
    return {key: counts[key] for key in sorted(counts)[-kept:]}


def _reopen(tx: Tx, row: Any, now: float) -> Returned:
    same = sa.and_(groups.c.fault == row.fault, groups.c.host == row.host)
    values = {"state": "open", "changed_at": now, "changed_by": "", "reopened": row.reopened + 1}
    tx.execute(sa.update(groups).where(same).values(**values))
    name, text = group_name(row.fault, row.host), row.text or ""
    what = f"{row.failure or ''} {row.status or ''}".strip()
    detail = f"resolved, and back at {row.host}: {what} {text}"
    # It ended with the resolution, and starts again: two changes, so that it is told each time.
    apply_change(tx, AlertChange(RETURNED, name, "resolved", detail, notify=False), now)
    apply_change(tx, AlertChange(RETURNED, name, "firing", detail), now)
    return Returned(name, row.host, text, int(row.died))


def _drop(tx: Tx, rows: Any) -> int:
    dropped: dict[int, list[Any]] = {}
    for row in rows:
        same = sa.and_(groups.c.fault == row.fault, groups.c.host == row.host)
        tx.execute(sa.delete(groups).where(same))
        if row.host != OTHER_HOSTS:
            dropped.setdefault(row.fault, []).append(row)
    for fault, gone in sorted(dropped.items()):
        _add_to_others(tx, fault, gone)
    return len(rows)


def _add_to_others(tx: Tx, fault: int, rows: list[Any]) -> None:
    died, gone = sum(row.died for row in rows), sum(row.gone for row in rows)
    first, last = min(row.first_at for row in rows), max(row.last_at for row in rows)
    new = (fault, OTHER_HOSTS, died, gone, first, last, 0, died)
    if tx.dialect.insert_new(tx.connection, groups, _COUNTS, [new]):
        return
    same = sa.and_(groups.c.fault == fault, groups.c.host == OTHER_HOSTS)
    values = {
        "died": groups.c.died + died,
        "gone": groups.c.gone + gone,
        "counted": groups.c.counted + died,
        "last_at": last,
    }
    tx.execute(sa.update(groups).where(same).values(**values))
