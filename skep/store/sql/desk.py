"""Small tables around the work: tokens, alerts, segments. Run by centers only."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from skep.store.sql.database import Database, Tx
from skep.store.sql.tables import alerts, segments, tokens

_TOKEN_COLUMNS = ("digest", "role", "subject", "created_at", "revoked")
_ALERT_COLUMNS = ("kind", "subject", "detail", "times", "first_at", "last_at")


class SqlTokens:
    """Answers `Tokens`: digests only, never a token."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, digest: bytes, role: str, subject: str, now: float) -> None:
        row = (digest, role, subject, now, 0)
        await self._database.write(
            lambda tx: tx.dialect.insert_new(tx.connection, tokens, _TOKEN_COLUMNS, [row])
        )

    async def find(self, digest: bytes) -> tuple[str, str] | None:
        query = sa.select(tokens.c.role, tokens.c.subject)
        query = query.where(tokens.c.digest == digest, tokens.c.revoked == 0)
        row = await self._database.read(lambda c: c.execute(query).first())
        return None if row is None else (row.role, row.subject)

    async def revoke(self, subject: str) -> int:
        live = sa.and_(tokens.c.subject == subject, tokens.c.revoked == 0)
        change = sa.update(tokens).where(live).values(revoked=1)
        return await self._database.write(lambda tx: int(tx.execute(change).rowcount))


class SqlAlerts:
    """Answers `Alerts`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def raise_(self, kind: str, subject: str, detail: str, now: float) -> None:
        row = (kind, subject, detail, 1, now, now)
        known = sa.update(alerts).where(alerts.c.kind == kind, alerts.c.subject == subject)

        def work(tx: Tx) -> None:
            if not tx.dialect.insert_new(tx.connection, alerts, _ALERT_COLUMNS, [row]):
                again = {"detail": detail, "times": alerts.c.times + 1, "last_at": now}
                tx.execute(known.values(**again))

        await self._database.write(work)

    async def recent(self, limit: int) -> list[dict[str, Any]]:
        query = sa.select(alerts).order_by(alerts.c.last_at.desc()).limit(limit)
        rows = await self._database.read(lambda c: c.execute(query).mappings().all())
        return [dict(row) for row in rows]


class SqlSegments:
    """Answers `Segments`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def committed_end(self, segment: str) -> int:
        query = sa.select(segments.c.committed).where(segments.c.name == segment)
        return await self._database.read(lambda c: int(c.execute(query).scalar() or 0))
