"""Searches, follows and shows stored log lines. Runs on centers; never changes anything.

Newest first over all sources, exactly, with a cursor to continue from. A call reads a bounded
number of bytes, or a few more: to move on it must read one piece of each source that wrote at that
moment. A piece whose summary rules the words out is not read.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from heapq import nlargest
from itertools import chain

from msgspec import Struct

from skep.errors import StoreDamaged
from skep.logs.center.found_lines import (
    LineKey,
    arrived_in,
    between,
    key_above,
    key_of,
    newest_in,
    read_cursor,
    write_cursor,
)
from skep.logs.center.query import LogQuery, Matcher
from skep.model.logs import LogLine, LogSource
from skep.runtime.clock import Clock
from skep.store.ports.logs import LogPieces, PieceFacts, PieceMark, PieceSelection

log = logging.getLogger(__name__)

#: Rows of one query.
_PAGE = 64
#: Arrivals that one call of `follow` looks at.
_ARRIVALS = 256


class SearchBudget(Struct, frozen=True):
    """What one call may cost."""

    #: Bytes of texts, decompressed.
    bytes: int = 256 * 2**20
    #: Rows of pieces.
    pieces: int = 100_000
    seconds: float = 2.0


class SearchResult(Struct, frozen=True):
    """The answer to one call of a search."""

    #: Newest first.
    lines: list[LogLine]
    #: Continue from here; empty when there is no more.
    cursor: str
    #: Every line at or after this time was looked at; None when all were.
    scanned_to: float | None
    #: Pieces looked at, and those of them that were read.
    pieces: int
    read: int
    #: Pieces that could not be read; lines of them may be missing.
    damaged: int = 0


class FollowResult(Struct, frozen=True):
    """Lines that arrived after a position, oldest first."""

    lines: list[LogLine]
    position: int
    #: There are more already: ask again at once.
    more: bool


class LogSearch:
    """Any number of calls at a time; it holds no state between them."""

    def __init__(self, pieces: LogPieces, clock: Clock) -> None:
        self._pieces = pieces
        self._clock = clock

    async def search(
        self, query: LogQuery, cursor: str, limit: int, budget: SearchBudget
    ) -> SearchResult:
        """Raises InvalidInput for a bad pattern or cursor."""
        below = read_cursor(cursor)
        scan = _Scan(query, below, limit, budget, self._clock)
        moment = await self._pieces.moment()
        async for facts in self._newest(query.selection(until=below[0]), moment):
            if scan.is_complete(facts.latest) or scan.is_spent(facts.latest):
                return scan.result(facts.latest)
            await self._scan(scan, facts)
        return scan.result(None)

    async def _newest(self, selection: PieceSelection, moment: int) -> AsyncIterator[PieceFacts]:
        after: PieceMark | None = None
        while page := await self._pieces.newest(selection, moment, after, _PAGE):
            for facts in page:
                yield facts
            after = page[-1].latest, page[-1].id

    async def _scan(self, scan: _Scan, facts: PieceFacts) -> None:
        if scan.skips(facts):
            return
        bodies = await self._pieces.bodies([facts.id])
        if facts.id in bodies:  # else deleted meanwhile
            await asyncio.to_thread(scan.read, facts, bodies[facts.id])

    async def context(
        self, source: LogSource, token: int, offset: int, before: int, after: int
    ) -> list[LogLine]:
        """The lines around a line of the same source and token, in order."""
        first, last = offset - before, offset + after
        moment = await self._pieces.moment()
        pieces = await self._pieces.covering(source, token, first, last, moment)
        bodies = await self._pieces.bodies([facts.id for facts in pieces])
        return [
            line
            for facts in pieces
            if facts.id in bodies
            for line in between(facts, bodies[facts.id], first, last)
        ]

    async def position(self) -> int:
        """Where following starts: after everything that is stored."""
        return await self._pieces.moment()

    async def follow(self, query: LogQuery, position: int) -> FollowResult:
        """What arrived after `position`, late lines too; each line once."""
        matcher, moment = Matcher(query), await self._pieces.moment()
        until = min(moment, position + _ARRIVALS)
        if until <= position:
            # A position beyond the last arrival is one of a store before it was restored.
            return FollowResult([], moment, more=False)
        pieces = await self._pieces.arrived(query.selection(), position, until, moment)
        read: list[list[LogLine]] = []
        for facts in pieces:
            if not query.fits_source(facts.source):
                continue
            bodies = await self._pieces.bodies([facts.id])
            if facts.id in bodies:
                arguments = facts, bodies[facts.id], query, matcher, position, until
                read.append(await asyncio.to_thread(_arrived, *arguments))
        lines = sorted(chain.from_iterable(read), key=key_of)
        return FollowResult(lines, until, more=until < moment)


def _arrived(
    facts: PieceFacts, body: bytes, query: LogQuery, matcher: Matcher, after: int, until: int
) -> list[LogLine]:
    """A damaged piece must not hold up what comes after it."""
    try:
        return arrived_in(facts, body, query, matcher, after, until)
    except StoreDamaged as error:
        _warn(facts, error)
        return []


def _warn(facts: PieceFacts, error: StoreDamaged) -> None:
    log.warning("log piece %d of %s: %s", facts.id, facts.source.name, error.detail)


class _Scan:
    """What one call has found so far."""

    def __init__(
        self, query: LogQuery, below: LineKey, limit: int, budget: SearchBudget, clock: Clock
    ) -> None:
        self._query = query
        self._matcher = Matcher(query)
        self._below = below
        self._limit = limit
        self._budget = budget
        self._clock = clock
        self._ends = clock.monotonic() + budget.seconds
        self._bytes = self._pieces = self._read = self._damaged = 0
        #: Newest first, at most `limit`.
        self._lines: list[LogLine] = []

    def is_complete(self, latest: float) -> bool:
        """Whether all that is asked for is newer than every piece that is left."""
        return len(self._lines) >= self._limit and self._lines[-1].time > latest

    def is_spent(self, latest: float) -> bool:
        """Whether the budget is spent. Every call makes progress: the next one starts below this
        one."""
        spent = (
            self._bytes >= self._budget.bytes
            or self._pieces >= self._budget.pieces
            or self._clock.monotonic() >= self._ends
        )
        return spent and key_above(latest) < self._below

    def skips(self, facts: PieceFacts) -> bool:
        self._pieces += 1
        fits = self._query.fits_source(facts.source) and self._matcher.may_be_in(facts.summary)
        return not fits

    def read(self, facts: PieceFacts, body: bytes) -> None:
        self._read += 1
        self._bytes += facts.size
        try:
            lines = newest_in(facts, body, self._query, self._matcher, self._below, self._limit)
        except StoreDamaged as error:
            _warn(facts, error)
            self._damaged += 1
            return
        if lines:
            self._lines = nlargest(self._limit, [*self._lines, *lines], key=key_of)

    def result(self, next_latest: float | None) -> SearchResult:
        """`next_latest`: of the first piece that was not looked at."""
        lines = self._lines
        if next_latest is not None:
            lines = [line for line in lines if line.time > next_latest]
        if len(lines) >= self._limit:
            cursor, scanned_to = write_cursor(key_of(lines[-1])), lines[-1].time
        elif next_latest is not None:
            cursor, scanned_to = write_cursor(key_above(next_latest)), next_latest
        else:
            cursor, scanned_to = "", None
        return SearchResult(lines, cursor, scanned_to, self._pieces, self._read, self._damaged)
