"""Log pieces in SQL. Implements `LogPieces`; run by centers only.

Writes take the quick writer: they hold no lock for long. Deleting works in batches, each its own
transaction, so that a large budget that shrinks does not hold up what is being stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from skep.model.logs import LogSource
from skep.store.ports.logs import (
    MergeRule,
    NewPiece,
    PieceFacts,
    PieceMark,
    PieceSelection,
    SourceProgress,
    StoredBytes,
)
from skep.store.sql.engine.database import Database
from skep.store.sql.engine.predicates import in_list
from skep.store.sql.logs import piece_writes
from skep.store.sql.logs.piece_rows import FACTS, digest_of, facts_of, selected, visible_at
from skep.store.sql.schema.logs import log_bodies, log_counter, log_pieces, log_sums

#: Pieces, and sources, that one transaction deletes.
BATCH = 500


class SqlLogPieces:
    """Rows of the tables in `schema/logs.py`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def progress(self, sources: Sequence[LogSource]) -> list[SourceProgress]:
        digests = [digest_of(source) for source in sources]
        known = await self._database.read(lambda c: piece_writes.progress_of(c, digests))
        return [known.get(digest, SourceProgress()) for digest in digests]

    async def add(self, pieces: Sequence[NewPiece], now: float) -> list[SourceProgress | None]:
        if not pieces:
            return []
        return await self._database.write(
            lambda tx: piece_writes.add_pieces(tx, pieces, now), quick=True
        )

    async def replace(self, ids: Sequence[int], piece: NewPiece, now: float) -> bool:
        return await self._database.write(
            lambda tx: piece_writes.replace_pieces(tx, ids, piece, now), quick=True
        )

    async def purge(self, before: float) -> int:
        return len(await self._delete([log_pieces.c.replaced_at < before]))

    async def _delete(self, where: Sequence[sa.ColumnElement[bool]]) -> list[int]:
        """The bytes of each piece that is gone."""
        gone: list[int] = []
        while True:
            batch = await self._database.write(
                lambda tx: piece_writes.delete_pieces(tx, where, BATCH), quick=True
            )
            gone += batch
            if len(batch) < BATCH:
                return gone

    async def moment(self) -> int:
        query = sa.select(log_counter.c.last)
        return int(await self._database.read(lambda c: c.execute(query).scalar()) or 0)

    async def newest(
        self, selection: PieceSelection, moment: int, after: PieceMark | None, limit: int
    ) -> list[PieceFacts]:
        latest, number = log_pieces.c.latest, log_pieces.c.id
        query = sa.select(*FACTS).where(
            visible_at(moment), *selected(selection, self._database.dialect.name)
        )
        if after is not None:
            below = sa.and_(latest == after[0], number < after[1])
            query = query.where(latest <= after[0], sa.or_(latest < after[0], below))
        return await self._facts(query.order_by(latest.desc(), number.desc()).limit(limit))

    async def _facts(self, query: sa.Select[Any]) -> list[PieceFacts]:
        return await self._database.read(lambda c: list(map(facts_of, c.execute(query))))

    async def covering(
        self, source: LogSource, token: int, first: int, last: int, moment: int
    ) -> list[PieceFacts]:
        columns = log_pieces.c
        query = sa.select(*FACTS).where(
            visible_at(moment),
            columns.source == digest_of(source),
            columns.token == token,
            columns.last >= first,
            columns.first <= last,
        )
        return await self._facts(query.order_by(columns.first))

    async def arrived(
        self, selection: PieceSelection, after: int, until: int, moment: int
    ) -> list[PieceFacts]:
        columns = log_pieces.c
        arrival = columns.last_arrived > after, columns.first_arrived <= until
        query = sa.select(*FACTS).where(
            visible_at(moment), *selected(selection, self._database.dialect.name), *arrival
        )
        return await self._facts(query.order_by(columns.id))

    async def mergeable(self, rule: MergeRule, limit: int) -> list[list[PieceFacts]]:
        query = _groups(rule).limit(limit)
        groups = await self._database.read(lambda c: c.execute(query).all())
        return [await self._facts(_group(rule, *group)) for group in groups]

    async def bodies(self, ids: Sequence[int]) -> dict[int, bytes]:
        query = sa.select(log_bodies).where(in_list(log_bodies.c.id, ids))
        rows = await self._database.read(lambda c: c.execute(query).all())
        return {int(row.id): bytes(row.body) for row in rows}

    async def stored(self) -> list[StoredBytes]:
        query = sa.select(log_sums)
        rows = await self._database.read(lambda c: c.execute(query).all())
        found = {(row.agent, row.name): int(row.n) for row in rows}
        return [
            StoredBytes(agent, found.get((agent, "pieces"), 0), found.get((agent, "bytes"), 0))
            for agent in sorted({agent for agent, _ in found})
        ]

    async def delete_oldest(self, agent: str | None, surplus: int, before: float) -> int:
        whose = [] if agent is None else [log_pieces.c.agent == agent]
        freed = sum(await self._delete([*whose, log_pieces.c.latest < before]))
        while freed < surplus and (more := await self._delete_surplus(agent, surplus - freed)):
            freed += more
        if agent is None:
            await self._database.write(lambda tx: piece_writes.forget_sources(tx, before, BATCH))
        return freed

    async def _delete_surplus(self, agent: str | None, missing: int) -> int:
        return await self._database.write(
            lambda tx: piece_writes.delete_surplus(tx, agent, missing, BATCH), quick=True
        )


def _groups(rule: MergeRule) -> sa.Select[Any]:
    """Sources and tokens with pieces to merge."""
    columns = log_pieces.c
    tiers = (
        sa.select(
            columns.source,
            columns.token,
            sa.func.count().label("pieces"),
            sa.func.sum(columns.size).label("bytes"),
            sa.func.min(columns.at).label("oldest"),
        )
        .where(columns.replaced.is_(None), columns.tier < rule.tier)
        .group_by(columns.source, columns.token, columns.tier)
        .subquery()
    )
    enough = sa.or_(
        sa.func.max(tiers.c.pieces) >= rule.count,
        sa.func.sum(tiers.c.bytes) >= rule.size,
        sa.func.min(tiers.c.oldest) < rule.before,
    )
    groups = sa.select(tiers.c.source, tiers.c.token)
    return groups.group_by(tiers.c.source, tiers.c.token).having(enough)


def _group(rule: MergeRule, source: bytes, token: int) -> sa.Select[Any]:
    """The pieces of one of them."""
    columns = log_pieces.c
    mine = columns.source == source, columns.token == token
    small = columns.replaced.is_(None), columns.tier < rule.tier
    return sa.select(*FACTS).where(*mine, *small).order_by(columns.first)
