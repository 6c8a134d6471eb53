"""Takes batches of log lines: each line once, on disk before the answer. Runs on centers.

A line is known by its source, token and offset: what is stored already is skipped, a token older
than the newest one is refused, and a gap becomes a line that says how many were dropped. An agent
over its rate must wait: its lines stay on its own disk, and others are not affected.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from logging import WARNING

from msgspec import Struct

from skep.errors import Malformed, StaleToken, TooLarge, Unavailable
from skep.logs.center.piece_body import (
    FAST,
    LINES_LIMIT,
    level_bits,
    make_table,
    microseconds,
    pack_body,
    row_of,
    seconds,
)
from skep.logs.line_format import decode_entries, is_safe, make_entry
from skep.model.logs import HIGHEST_LEVEL, LOWEST_LEVEL, LogBatch, LogEntry, LogSource
from skep.model.message_bounds import is_printable
from skep.runtime.batcher import Batcher
from skep.runtime.clock import Clock
from skep.store.ports.logs import LogPieces, NewPiece, SourceProgress

#: Bytes of the lines of one batch.
BATCH_LIMIT = 4 * 2**20
#: Sources whose progress is remembered, and agents whose rate is.
_REMEMBERED = 10_000
#: No source reaches this offset, and every database can store it.
_OFFSETS = 2**62
#: Characters of the names of a source, as stores keep them.
_NAME, _ID = 255, 64
#: Another center may take lines of the same source meanwhile.
_TRIES = 5


class IntakeRate(Struct, frozen=True):
    """Bytes that one agent may send."""

    per_second: float = 2.0 * 2**20
    burst: float = 32.0 * 2**20


class IntakeResult(Struct, frozen=True):
    """The answer to a batch."""

    #: Every line before this offset is stored, or known to be dropped.
    next: int
    stored: int = 0
    duplicates: int = 0
    #: Lines that the sender dropped before this batch.
    dropped: int = 0
    #: Nothing was taken; send the batch again after this many seconds.
    wait: float = 0.0


@dataclass(slots=True)
class IntakeFigures:
    """Lines and batches since the start."""

    stored: int = 0
    duplicates: int = 0
    #: Lines in batches with an old token.
    stale: int = 0
    #: Lines that senders dropped.
    dropped: int = 0
    #: Lines that were cut, masked or made printable here, because their sender did not.
    repaired: int = 0
    #: Batches that must be sent again, by agent.
    delayed: dict[str, int] = field(default_factory=dict)


class LogIntake:
    """Any number of callers at a time; several centers may run one each on the same store."""

    def __init__(
        self,
        pieces: LogPieces,
        clock: Clock,
        rate: IntakeRate,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """`check` raises DiskFull while nothing may be stored."""
        self._pieces = pieces
        self._check_disk = check
        self._clock = clock
        self._rates = _Rates(rate)
        self._known: OrderedDict[LogSource, SourceProgress] = OrderedDict()
        self._batcher: Batcher[NewPiece, SourceProgress | None] = Batcher(self._add, limit=64)
        self.figures = IntakeFigures()

    async def take(self, batch: LogBatch) -> IntakeResult:
        """Raises StaleToken, Malformed, TooLarge, DiskFull, and what the store raises."""
        _check(batch)
        self._check_disk()
        agent = batch.source.agent
        # Sources of centers have a rate each, so that a spider does not hold up its center.
        sender = agent or "/".join((str(batch.source.kind), batch.source.name, batch.source.run))
        wait = self._rates.wait(sender, len(batch.lines), self._clock.monotonic())
        if wait:
            self.figures.delayed[agent] = self.figures.delayed.get(agent, 0) + 1
            return IntakeResult(batch.first, wait=wait)
        return await self._store(batch)

    async def _store(self, batch: LogBatch) -> IntakeResult:
        known = self._known.get(batch.source)
        if known is None:
            known = (await self._pieces.progress([batch.source]))[0]
        for _ in range(_TRIES):
            self._refuse_stale(batch, known)
            found = await asyncio.to_thread(_prepared, batch, known, self._clock.now())
            against = None
            if found.piece is not None:
                against = await self._batcher.ask(batch.source, found.piece)
            if against is None:
                self._remember(batch.source, found.progress or known)
                self._count(found)
                return found.taken
            known = against
        raise Unavailable("other centers take lines of this source; send the batch again")

    async def _add(self, pieces: list[NewPiece]) -> Sequence[SourceProgress | None]:
        return await self._pieces.add(pieces, self._clock.now())

    def _refuse_stale(self, batch: LogBatch, known: SourceProgress) -> None:
        if batch.token < known.token:
            self.figures.stale += batch.lines.count(b"\n") + 1
            raise StaleToken(
                f"log lines of {batch.source.name} with token {batch.token}, but token "
                f"{known.token} is in use; discard them"
            )

    def _remember(self, source: LogSource, progress: SourceProgress) -> None:
        self._known[source] = progress
        self._known.move_to_end(source)
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)

    def _count(self, found: _Prepared) -> None:
        self.figures.stored += found.taken.stored
        self.figures.duplicates += found.taken.duplicates
        self.figures.dropped += found.taken.dropped
        self.figures.repaired += found.repaired


def _check(batch: LogBatch) -> None:
    if len(batch.lines) > BATCH_LIMIT:
        raise TooLarge(f"a batch of {len(batch.lines)} bytes; send {BATCH_LIMIT} at most")
    if not 0 <= batch.first < _OFFSETS:
        raise Malformed(f"offset {batch.first} is out of range; offsets of a source count from 0")
    source = batch.source
    if not all(map(is_printable, (source.name, source.run, source.agent))):
        raise Malformed(f"the log source {source.name!r} has a name with unprintable characters")
    if len(source.name) > _NAME or max(len(source.run), len(source.agent)) > _ID:
        raise Malformed(
            f"the log source {source.name[:_ID]!r} has a name of more than {_NAME} characters, or "
            f"a run or an agent of more than {_ID}; use shorter names"
        )


@dataclass(frozen=True, slots=True)
class _Prepared:
    """What is new in a batch: the answer once `piece` is stored; None when nothing is new."""

    taken: IntakeResult
    piece: NewPiece | None = None
    repaired: int = 0

    @property
    def progress(self) -> SourceProgress | None:
        """Of the source, once the piece is stored."""
        piece = self.piece
        return None if piece is None else SourceProgress(piece.token, piece.next, piece.latest)


def _prepared(batch: LogBatch, known: SourceProgress, now: float) -> _Prepared:
    """Runs in a thread."""
    entries = decode_entries(batch.lines)
    if len(entries) > LINES_LIMIT:
        raise TooLarge(f"a batch of {len(entries)} lines; send {LINES_LIMIT} at most")
    expected = known.next if batch.token == known.token else 0
    end = batch.first + len(entries)
    if end <= expected or not entries:
        return _Prepared(IntakeResult(max(expected, batch.first), duplicates=len(entries)))
    skipped, gap = max(0, expected - batch.first), max(0, batch.first - expected)
    came = entries[skipped:]
    fresh = [entry if is_safe(entry) else _repaired(entry) for entry in came]
    repaired = sum(after is not before for after, before in zip(fresh, came, strict=True))
    if gap:
        fresh.insert(0, dropped_line(gap, fresh[0].time))
    piece = new_piece(batch.source, batch.token, end, fresh, forward_times(fresh, known.time, now))
    return _Prepared(IntakeResult(end, len(fresh), skipped, gap), piece, repaired)


def _repaired(entry: LogEntry) -> LogEntry:
    return make_entry(entry.time, entry.level, entry.text, entry.fields)


def forward_times(entries: Sequence[LogEntry], last: float, now: float) -> list[int]:
    """Microseconds of each line. Times of a source never go back and are never in the future: so
    its pieces do not overlap, and a search can page through all sources by time."""
    least, most = microseconds(last), max(now, last)
    times = []
    for entry in entries:
        least = max(least, microseconds(min(max(entry.time, 0.0), most)))
        times.append(least)
    return times


def dropped_line(count: int, time: float) -> LogEntry:
    """Its offset is that of the last missing line."""
    noun = "line" if count == 1 else "lines"
    return LogEntry(time, WARNING, f"{count:,} {noun} dropped", {"dropped": count})


def new_piece(
    source: LogSource, token: int, end: int, entries: Sequence[LogEntry], times: list[int]
) -> NewPiece:
    """Lines as they arrived, up to the offset `end`. Without a summary, since a larger piece
    replaces it soon."""
    first = end - len(entries)
    texts = "\n".join(map(row_of, entries)).encode()
    levels = bytes([min(max(entry.level, LOWEST_LEVEL), HIGHEST_LEVEL) for entry in entries])
    return NewPiece(
        source=source,
        token=token,
        first=first,
        last=end - 1,
        next=end,
        count=len(entries),
        size=len(texts),
        levels=level_bits(levels),
        earliest=seconds(times[0]),
        latest=seconds(times[-1]),
        tier=0,
        summary=b"",
        body=pack_body(make_table([(first, len(entries))], times, levels), texts, FAST),
    )


class _Rates:
    """A bucket of bytes per agent that fills with time. More than a burst needs a full one."""

    def __init__(self, rate: IntakeRate) -> None:
        self._rate = rate
        #: Agent -> (bytes left, when that was known).
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait(self, agent: str, size: int, now: float) -> float:
        """Seconds until this number of bytes is allowed; takes them when it is 0."""
        rate = self._rate
        left, at = self._left.get(agent, (rate.burst, now))
        left = min(rate.burst, left + (now - at) * rate.per_second)
        needed = min(size, rate.burst)
        enough = left >= needed
        self._left[agent] = (left - needed if enough else left, now)
        self._left.move_to_end(agent)
        if len(self._left) > _REMEMBERED:
            self._left.popitem(last=False)
        return 0.0 if enough else (needed - left) / rate.per_second
