"""Makes large pieces of small ones: better compressed, with a summary for searches.

Any center can run it at any time: a piece that another center has merged is left alone. A line is
written again once per tier, whatever the size of the batches it came in. Nothing is deleted here:
readers that started earlier still find the small pieces until they are purged.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from itertools import groupby

from skep.errors import StoreDamaged
from skep.logs.center.piece_body import (
    LINES_LIMIT,
    SMALL,
    joined_tables,
    pack_body,
    read_table,
    read_texts,
)
from skep.logs.center.summary import make_summary
from skep.runtime.clock import Clock
from skep.store.ports.logs import LogPieces, MergeRule, NewPiece, PieceFacts

log = logging.getLogger(__name__)

#: Bytes of the texts of a piece that is not merged again.
PIECE_BYTES = 2**20
#: Pieces of one tier that become one of the next; a final one, with this part of the bytes above.
FAN_IN = 16
_ENOUGH = 4
#: The highest tier.
FINAL = 4
#: Seconds after which lines of a quiet source become a final piece of whatever size.
SETTLE = 3600.0
#: Seconds that a replaced piece stays for readers.
LINGER = 600.0
_GROUPS = 64

Merge = tuple[list[PieceFacts], int]


class PieceMerger:
    """Call `step` repeatedly; it returns the number of replaced pieces."""

    def __init__(self, pieces: LogPieces, clock: Clock) -> None:
        self._pieces = pieces
        self._clock = clock

    async def step(self) -> int:
        now = self._clock.now()
        rule = MergeRule(FINAL, FAN_IN, PIECE_BYTES, now - SETTLE)
        replaced = 0
        for group in await self._pieces.mergeable(rule, _GROUPS):
            for merge in planned(group, rule):
                replaced += await self._merge(merge, now)
        await self._pieces.purge(now - LINGER)
        return replaced

    async def _merge(self, merge: Merge, now: float) -> int:
        parts, tier = merge
        ids = [part.id for part in parts]
        bodies = await self._pieces.bodies(ids)
        if len(bodies) < len(ids):
            return 0
        try:
            whole = await asyncio.to_thread(merged_piece, parts, bodies, tier)
        except StoreDamaged as error:
            log.warning(
                "pieces of the log of %s stay small: %s", parts[0].source.name, error.detail
            )
            return 0
        return len(ids) if await self._pieces.replace(ids, whole, now) else 0


def planned(group: Sequence[PieceFacts], rule: MergeRule) -> Iterator[Merge]:
    """What to merge of the small pieces of one source and token. Full pieces first; then the rest,
    if it is old; else each tier that has enough pieces."""
    rest: list[PieceFacts] = []
    for chunk, is_full in _chunks(group, rule.size):
        if is_full:
            yield chunk, rule.tier
        else:
            rest = chunk
    if rest and min(part.at for part in rest) < rule.before:
        yield rest, rule.tier
        return
    for tier, pieces in groupby(rest, key=lambda part: part.tier):
        same = list(pieces)
        if len(same) >= rule.count:
            enough = sum(part.size for part in same) >= rule.size // _ENOUGH
            yield same, rule.tier if enough else min(tier + 1, rule.tier - 1)


def _chunks(group: Sequence[PieceFacts], size: int) -> Iterator[tuple[list[PieceFacts], bool]]:
    """(pieces, whether they are enough for a full one); only the last may not be."""
    chunk: list[PieceFacts] = []
    lines = volume = 0
    for piece in group:
        if chunk and lines + piece.count > LINES_LIMIT:
            yield chunk, True
            chunk, lines, volume = [], 0, 0
        chunk.append(piece)
        lines, volume = lines + piece.count, volume + piece.size
        if volume >= size:
            yield chunk, True
            chunk, lines, volume = [], 0, 0
    if chunk:
        yield chunk, False


def merged_piece(parts: Sequence[PieceFacts], bodies: dict[int, bytes], tier: int) -> NewPiece:
    """One piece with the lines of several, in the order of their offsets."""
    texts = b"\n".join(read_texts(bodies[part.id]) for part in parts)
    table = joined_tables([(part.id, read_table(bodies[part.id])) for part in parts])
    levels = 0
    for part in parts:
        levels |= part.levels
    return NewPiece(
        source=parts[0].source,
        token=parts[0].token,
        first=parts[0].first,
        last=parts[-1].last,
        next=parts[-1].last + 1,
        count=sum(part.count for part in parts),
        size=len(texts),
        levels=levels,
        earliest=parts[0].earliest,
        latest=parts[-1].latest,
        tier=tier,
        summary=make_summary(texts),
        body=pack_body(table, texts, SMALL),
    )
