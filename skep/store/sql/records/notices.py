"""The outbox of notices, and the ends of runs that cause them. Implements `Notices`.

Run by centers only. An ending is written by the transaction that ends the run, and deleted by the
one that posts its notices: it is handled once, whichever center dies in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from skep.model.jobs.notice import Notice, RunEnding
from skep.model.states import RunState
from skep.store.sql.engine.database import Database, Tx
from skep.store.sql.schema.ended_work import endings, notices

#: States that can cause a notice.
TOLD = frozenset({RunState.FINISHED, RunState.FAILED, RunState.CANCELLED})
ERROR_LIMIT = 500
_COLUMNS = Notice.__struct_fields__


class SqlNotices:
    """Rows of `endings` and `notices`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def endings(self, limit: int) -> list[RunEnding]:
        query = sa.select(endings).order_by(endings.c.id).limit(limit)
        rows = await self._database.read(lambda c: c.execute(query).all())
        return [RunEnding(row.id, row.run, row.state, row.reason, row.at) for row in rows]

    async def post(self, ending: int, posted: Sequence[Notice]) -> bool:
        rows = [tuple(getattr(notice, name) for name in _COLUMNS) for notice in posted]

        def work(tx: Tx) -> bool:
            if not tx.execute(sa.delete(endings).where(endings.c.id == ending)).rowcount:
                return False
            tx.dialect.insert_new(tx.connection, notices, _COLUMNS, rows)
            return True

        return await self._database.write(work)

    async def take(self, now: float, again_at: float, limit: int) -> list[Notice]:
        due = (
            sa.select(notices.c.id)
            .where(notices.c.state == "waiting", notices.c.due_at <= now)
            .order_by(notices.c.due_at)
            .limit(limit)
            .with_for_update(skip_locked=True)
        )

        def work(tx: Tx) -> list[Notice]:
            ids = list(tx.execute(due).scalars())
            if not ids:
                return []
            mine = notices.c.id.in_(ids)
            tried = {"tries": notices.c.tries + 1, "due_at": again_at}
            tx.execute(sa.update(notices).where(mine).values(**tried))
            return [notice_in(row) for row in tx.execute(sa.select(notices).where(mine))]

        return await self._database.write(work)

    async def told(self, notice: str) -> None:
        await self._set(notice, state="told", error="")

    async def failed(self, notice: str, error: str, again_at: float | None) -> None:
        said = {"error": error.replace("\0", "\ufffd")[:ERROR_LIMIT]}
        if again_at is None:
            await self._set(notice, state="given up", **said)
        else:
            await self._set(notice, due_at=again_at, **said)

    async def recent(self, limit: int, run: str = "") -> list[Notice]:
        query = sa.select(notices).order_by(notices.c.created_at.desc()).limit(limit)
        if run:
            query = query.where(notices.c.run == run)
        return await self._database.read(lambda c: [notice_in(row) for row in c.execute(query)])

    async def forget_told(self, before: float) -> int:
        old = sa.and_(notices.c.state != "waiting", notices.c.created_at < before)
        change = sa.delete(notices).where(old)
        return await self._database.write(lambda tx: int(tx.execute(change).rowcount))

    async def _set(self, notice: str, **values: Any) -> None:
        change = sa.update(notices).where(notices.c.id == notice, notices.c.state == "waiting")
        await self._database.write(lambda tx: tx.execute(change.values(**values)) and None)


def note_ending(tx: Tx, run: str, state: RunState, reason: str, now: float) -> None:
    """Called by every function that changes the state of a run."""
    if state in TOLD:
        row = {"run": run, "state": str(state), "reason": reason, "at": now}
        tx.execute(sa.insert(endings).values(**row))


def notice_in(row: Any) -> Notice:
    """A notice from its row."""
    values = {name: getattr(row, name) for name in _COLUMNS}
    return Notice(**{**values, "body": bytes(row.body)})
