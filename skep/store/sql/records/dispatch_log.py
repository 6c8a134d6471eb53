"""The dispatch log in SQL. Implements `Dispatches`; run by centers only.

Rows are written in batches and deleted by age. Losing one loses no work.
"""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from skep.model.dispatch import DispatchRow
from skep.store.sql.engine.database import Database, Tx
from skep.store.sql.engine.dialect import id_list
from skep.store.sql.schema.dispatch_log import dispatch_log

#: Maximum characters of a reason.
REASON_LIMIT = 1000
_COLUMNS = (
    "at", "kind", "run", "job", "lane", "reason",
    "size", "blocks", "rounds", "seconds", "center", "host",
)  # fmt: skip


class SqlDispatches:
    """Rows of `dispatch_log`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, rows: Sequence[DispatchRow]) -> None:
        if not rows:
            return
        values = [tuple(_kept(row)[name] for name in _COLUMNS) for row in rows]

        def work(tx: Tx) -> None:
            tx.dialect.insert_many(tx.connection, dispatch_log, _COLUMNS, values)

        await self._database.write(work)

    async def recent(
        self, limit: int, before: int | None = None, run: str = "", kind: str = ""
    ) -> list[DispatchRow]:
        query = sa.select(dispatch_log).order_by(dispatch_log.c.id.desc()).limit(limit)
        if before is not None:
            query = query.where(dispatch_log.c.id < before)
        if run:
            query = query.where(dispatch_log.c.run == run)
        if kind:
            query = query.where(dispatch_log.c.kind == kind)
        rows = await self._database.read(lambda c: c.execute(query).mappings().all())
        return [DispatchRow(**row) for row in rows]

    async def forget(self, before: float, limit: int, kept: int | None = None) -> int:
        old = sa.select(dispatch_log.c.id).where(dispatch_log.c.at < before)
        old = old.order_by(dispatch_log.c.at).limit(limit)

        def work(tx: Tx) -> int:
            ids = list(tx.execute(old).scalars()) or _beyond(tx, kept, limit)
            if ids:
                tx.sql(f"DELETE FROM dispatch_log WHERE id IN ({id_list(ids)})")  # noqa: S608
            return len(ids)

        return await self._database.write(work)


def _beyond(tx: Tx, kept: int | None, limit: int) -> list[int]:
    """The oldest rows when there are more than are kept; assumes ids without gaps, so that nothing
    is counted."""
    newest = tx.execute(sa.select(sa.func.max(dispatch_log.c.id))).scalar()
    if kept is None or newest is None:
        return []
    query = sa.select(dispatch_log.c.id).where(dispatch_log.c.id <= newest - kept)
    return list(tx.execute(query.order_by(dispatch_log.c.id).limit(limit)).scalars())


def _kept(row: DispatchRow) -> dict[str, object]:
    fields = {name: getattr(row, name) for name in _COLUMNS}
    return {**fields, "reason": row.reason.replace("\0", "\ufffd")[:REASON_LIMIT]}
