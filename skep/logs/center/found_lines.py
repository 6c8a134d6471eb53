"""The order of log lines, the cursors that name a place in it, and lines picked from a piece. Pure.

Lines are ordered by time, then by source, token and offset. None of these changes when pieces are
merged, so a cursor stays valid.
"""

from __future__ import annotations

import binascii
import math
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable

import msgspec

from skep.errors import InvalidInput
from skep.logs.center.piece_body import entry_of, read_table, read_texts
from skep.logs.center.query import LogQuery, Matcher
from skep.logs.line_format import shown_line
from skep.model.logs import LogLine
from skep.store.ports.logs import PieceFacts

#: (time, (kind, source, run, agent), token, offset)
LineKey = tuple[float, tuple[str, str, str, str], int, int]
TOP: LineKey = (math.inf, ("", "", "", ""), 0, 0)


def key_of(line: LogLine) -> LineKey:
    source = (str(line.kind), line.source, line.run, line.agent)
    return line.time, source, line.token, line.offset


def key_above(time: float) -> LineKey:
    """Above every line of this time, below every later one."""
    return math.nextafter(time, math.inf), ("", "", "", ""), 0, 0


def write_cursor(key: LineKey) -> str:
    return urlsafe_b64encode(msgspec.msgpack.encode(key)).decode().rstrip("=")


def read_cursor(cursor: str) -> LineKey:
    """The empty cursor is above all lines. Raises InvalidInput."""
    if not cursor:
        return TOP
    try:
        data = urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        key: LineKey = msgspec.msgpack.decode(data, type=LineKey)
    except (binascii.Error, ValueError, msgspec.MsgspecError) as error:
        raise InvalidInput(
            f"{cursor[:80]!r} is not a cursor; use one that a search has returned"
        ) from error
    return key


def newest_in(
    facts: PieceFacts, body: bytes, query: LogQuery, matcher: Matcher, below: LineKey, limit: int
) -> list[LogLine]:
    """Up to `limit` lines of a piece that fit and are below a key, newest first."""
    texts = read_texts(body)
    numbers: Iterable[int] = range(facts.count - 1, -1, -1)
    if not matcher.takes_all:
        numbers = reversed(matcher.rows_in(texts))
    return _picked(_Lines(facts, body, texts), numbers, query, below, limit)


def arrived_in(
    facts: PieceFacts, body: bytes, query: LogQuery, matcher: Matcher, after: int, until: int
) -> list[LogLine]:
    """Lines of a piece that fit and arrived under an id in that range, newest first."""
    texts = read_texts(body)
    numbers = range(facts.count) if matcher.takes_all else matcher.rows_in(texts)
    lines = _Lines(facts, body, texts)
    arrivals = lines.arrivals()
    wanted = [number for number in numbers if after < arrivals[number] <= until]
    return _picked(lines, reversed(wanted), query, TOP, facts.count)


def between(facts: PieceFacts, body: bytes, first: int, last: int) -> list[LogLine]:
    """Lines of a piece by offset, in order."""
    lines = _Lines(facts, body, read_texts(body))
    numbers = (at for at, offset in enumerate(lines.offsets) if first <= offset <= last)
    return [lines.line(number) for number in numbers]


def _picked(
    lines: _Lines, numbers: Iterable[int], query: LogQuery, below: LineKey, limit: int
) -> list[LogLine]:
    found: list[LogLine] = []
    for number in numbers:
        if len(found) >= limit:
            break
        if not query.fits_level(lines.levels[number]) or not _in_time(lines.times[number], query):
            continue
        if lines.times[number] > below[0]:
            continue
        line = lines.line(number)
        if key_of(line) < below and query.fits_line(line):
            found.append(line)
    return found


def _in_time(time: float, query: LogQuery) -> bool:
    return (query.since is None or time >= query.since) and (
        query.until is None or time <= query.until
    )


class _Lines:
    """The lines of one piece; columns are computed on first use."""

    def __init__(self, facts: PieceFacts, body: bytes, texts: bytes) -> None:
        table = read_table(body)
        self._facts = facts
        self._texts = texts
        self._arrived = table.arrivals or [(facts.id, facts.count)]
        self._rows: list[bytes] | None = None
        self.times = table.times()
        self.offsets = table.offsets()
        self.levels = table.levels

    def arrivals(self) -> list[int]:
        """The id under which each line arrived."""
        return [number for number, count in self._arrived for _ in range(count)]

    def line(self, number: int) -> LogLine:
        if self._rows is None:
            self._rows = self._texts.split(b"\n")
        entry = entry_of(self._rows[number], self.times[number], self.levels[number])
        facts = self._facts
        return shown_line(facts.source, facts.token, self.offsets[number], entry)
