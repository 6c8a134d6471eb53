"""Small tables: alerts, segments. Run by centers only.

An alert is one row per kind and subject, however often it is raised.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from skep.model.archived_page import ArchivedPage
from skep.store.sql.engine.database import Database, Tx
from skep.store.sql.schema.records import alerts, segments

_ALERT_COLUMNS = (
    *("kind", "subject", "detail", "times", "first_at", "last_at"),
    *("changed_at", "severity", "untold"),
)
#: Kinds that report what was done: they are listed, and cause no notices.
REPORTS = frozenset({"retention"})
#: Kinds that a notice would only make worse.
UNTOLD = frozenset({*REPORTS, "notice_failed"})


class SqlAlerts:
    """Implements `Alerts`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def raise_(self, kind: str, subject: str, detail: str, now: float) -> None:
        severity, untold = "info" if kind in REPORTS else "warning", int(kind not in UNTOLD)
        row = (kind, subject, detail, 1, now, now, now, severity, untold)
        known = sa.update(alerts).where(alerts.c.kind == kind, alerts.c.subject == subject)

        def work(tx: Tx) -> None:
            if not tx.dialect.insert_new(tx.connection, alerts, _ALERT_COLUMNS, [row]):
                again = {"detail": detail, "times": alerts.c.times + 1, "last_at": now}
                tx.execute(known.values(**again))
                # One that had ended starts again.
                fires = {"state": "firing", "changed_at": now, "untold": untold}
                fires |= {"changes": alerts.c.changes + 1, "acknowledged_at": 0.0}
                tx.execute(known.where(alerts.c.state == "resolved").values(**fires))

        await self._database.write(work)

    async def recent(self, limit: int) -> list[dict[str, Any]]:
        query = sa.select(alerts).order_by(alerts.c.last_at.desc()).limit(limit)
        rows = await self._database.read(lambda c: c.execute(query).mappings().all())
        return [dict(row) for row in rows]


class SqlSegments:
    """Implements `Segments`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def committed_end(self, segment: str) -> int:
        query = sa.select(segments.c.committed).where(segments.c.name == segment)
        return await self._database.read(lambda c: int(c.execute(query).scalar() or 0))

    async def adopt(self, run: str, segment: str, pages: Sequence[ArchivedPage]) -> int:
        from skep.store.sql.requests.rebuild_from_archive import adopt_pages

        if not pages:
            return 0
        return await self._database.write(lambda tx: adopt_pages(tx, run, segment, pages))
