"""The audit log. Implements `AuditLog`; run by centers only.

`insert_rows` also serves other modules that store a row in the transaction of their change.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from skep.model.filter.checked import CheckedFilter
from skep.model.people.audit import AuditOutcome, AuditPage, AuditRow
from skep.store.sql.engine.database import Database, Tx
from skep.store.sql.engine.predicates import in_list
from skep.store.sql.filters.compile import compile_filter
from skep.store.sql.filters.search import Listing, search
from skep.store.sql.schema.people import audit_log

_COLUMNS = (
    *("at", "who", "action", "object", "outcome", "detail", "address", "client"),
    *("credential", "state_before", "state_after", "times", "center", "size"),
)
#: Estimated bytes of a row without its texts, with its entries in the indexes.
_ROW_BYTES = 150
AUDIT_LISTING = Listing(sa.select(audit_log), audit_log.c.id)


class SqlAuditLog:
    """Rows of `audit`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, rows: Sequence[AuditRow]) -> None:
        if rows:
            await self._database.write(lambda tx: insert_rows(tx, rows))

    async def page(self, wanted: CheckedFilter, limit: int = 100, after: int = 0) -> AuditPage:
        compiled = compile_filter(wanted, self._database.dialect.name)
        found = await self._database.read(
            lambda c: search(c, AUDIT_LISTING, compiled, (after,) if after else None, limit)
        )
        following = None if found.next is None else int(found.next[0])
        return AuditPage([audit_in(row) for row in found.rows], following, found.scanned)

    async def forget(self, before: float, most_bytes: int, limit: int = 5000) -> int:
        def work(tx: Tx) -> int:
            old = sa.select(audit_log.c.id).where(audit_log.c.at < before)
            numbers = set(tx.execute(old.order_by(audit_log.c.at).limit(limit)).scalars())
            numbers |= _above(tx, most_bytes, limit) if most_bytes else set()
            if not numbers:
                return 0
            gone = sa.delete(audit_log).where(in_list(audit_log.c.id, sorted(numbers)))
            return int(tx.execute(gone).rowcount)

        return await self._database.write(work)


def insert_rows(tx: Tx, rows: Sequence[AuditRow]) -> None:
    """Store rows in the transaction of a caller."""
    tx.dialect.insert_new(tx.connection, audit_log, _COLUMNS, [_values(row) for row in rows])


def _values(row: AuditRow) -> tuple[Any, ...]:
    texts = [row.who, row.action, row.object, row.outcome.value, row.detail, row.address]
    texts += [row.client, row.credential, row.before, row.after]
    size = _ROW_BYTES + sum(map(len, texts))
    return (row.at, *texts, row.times, row.center, size)


def _above(tx: Tx, most_bytes: int, limit: int) -> set[int]:
    """The oldest rows that must go, so that the rest fits."""
    total = int(
        tx.execute(sa.select(sa.func.coalesce(sa.func.sum(audit_log.c.size), 0))).scalar_one()
    )
    oldest = sa.select(audit_log.c.id, audit_log.c.size).order_by(audit_log.c.id).limit(limit)
    numbers: set[int] = set()
    for row in tx.execute(oldest) if total > most_bytes else ():
        if total <= most_bytes:
            break
        numbers.add(row.id)
        total -= row.size
    return numbers


def audit_in(row: Any) -> AuditRow:
    """A row as data."""
    return AuditRow(
        at=row.at,
        who=row.who,
        action=row.action,
        object=row.object,
        outcome=AuditOutcome(row.outcome),
        detail=row.detail,
        address=row.address,
        client=row.client,
        credential=row.credential,
        before=row.state_before,
        after=row.state_after,
        times=int(row.times),
        center=row.center,
        id=int(row.id),
    )
