"""Stores the log lines of a center's own process. Runs on centers.

`put` may be called from any thread and never waits: lines are queued in memory, within bounds of
lines and bytes, and stored in batches. A source over its bound loses its newest lines; the gap in
the offsets becomes a line that names their number. Lines about the storing of lines are not taken
(`logs.handler` leaves them out), so a failure never feeds itself.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from threading import Lock

from skep.errors import SkepError, StaleToken, Unavailable
from skep.logs.center.intake import LogIntake
from skep.logs.line_format import encode_entry
from skep.model.logs import LogBatch, LogEntry, LogSource
from skep.store.ports.logs import LogPieces

#: Lines, and bytes, of one source that wait.
LINES, BYTES = 10_000, 4 * 2**20
#: Sources that wait at the same time; lines of others are dropped.
SOURCES = 2_000
#: Lines, and bytes, of one batch.
_BATCH_LINES, _BATCH_BYTES = 2_000, 2**20
#: The token follows the newest that is stored: one process at a time has this source.
NEWEST = 0

Key = tuple[LogSource, int]


@dataclass(slots=True)
class _Queue:
    """Lines of one source, each with its number since the queue was made."""

    lines: deque[tuple[int, bytes]] = field(default_factory=deque)
    size: int = 0
    made: int = 0
    #: Token and offset of number 0, once the store was asked.
    token: int = 0
    base: int | None = None


class LogRecorder:
    """Call `step` repeatedly; it returns the number of stored lines."""

    def __init__(self, intake: LogIntake, pieces: LogPieces) -> None:
        self._intake = intake
        self._pieces = pieces
        self._lock = Lock()
        self._queues: dict[Key, _Queue] = {}
        #: Lines dropped since the start: the queue was full, or another process has the source.
        self.dropped = 0

    @property
    def waiting(self) -> int:
        """Lines that are not stored yet."""
        with self._lock:
            return sum(len(queue.lines) for queue in self._queues.values())

    def put(self, source: LogSource, token: int, entry: LogEntry) -> None:
        """Queue a line. A higher `token` excludes older writers of the source; see NEWEST."""
        line = encode_entry(entry)
        with self._lock:
            queue = self._queues.get((source, token))
            if queue is None:
                if len(self._queues) >= SOURCES:
                    self.dropped += 1
                    return
                queue = self._queues[source, token] = _Queue()
            number, queue.made = queue.made, queue.made + 1
            if len(queue.lines) >= LINES or queue.size + len(line) > BYTES:
                self.dropped += 1
                return
            queue.lines.append((number, line))
            queue.size += len(line)

    async def step(self) -> int:
        """Raises Unavailable when the store takes nothing; the lines stay queued."""
        stored = 0
        for key, queue in list(self._queues.items()):
            try:
                stored += await self._drain(key, queue)
            except StaleToken:
                self._discard(queue)
            except Unavailable:
                raise
            except SkepError:  # a source that is refused; its lines would be refused again
                self._discard(queue)
            self._forget_if_idle(key, queue)
        return stored

    async def _drain(self, key: Key, queue: _Queue) -> int:
        stored = 0
        while batch := await self._batch(key, queue):
            taken = await self._intake.take(batch)
            if taken.wait:
                break
            count = batch.lines.count(b"\n") + 1
            self._take_off(queue, count)
            stored += count
        return stored

    async def _batch(self, key: Key, queue: _Queue) -> LogBatch | None:
        """The oldest lines without a gap between them."""
        with self._lock:
            if not queue.lines:
                return None
            first = queue.lines[0][0]
            lines: list[bytes] = []
            size = 0
            for number, line in queue.lines:
                full = len(lines) >= _BATCH_LINES or size + len(line) > _BATCH_BYTES
                if number != first + len(lines) or (lines and full):
                    break
                lines.append(line)
                size += len(line)
        base = queue.base if queue.base is not None else await self._base(key, queue)
        return LogBatch(key[0], queue.token, base + first, b"\n".join(lines))

    async def _base(self, key: Key, queue: _Queue) -> int:
        """Continue after what an earlier process has stored under the same token."""
        source, token = key
        known = (await self._pieces.progress([source]))[0]
        queue.token = known.token + 1 if token == NEWEST else token
        queue.base = known.next if known.token == queue.token else 0
        return queue.base

    def _take_off(self, queue: _Queue, count: int) -> None:
        with self._lock:
            for _ in range(count):
                queue.size -= len(queue.lines.popleft()[1])

    def _discard(self, queue: _Queue) -> None:
        """Start again from what the store has by then."""
        with self._lock:
            self.dropped += len(queue.lines)
            queue.lines.clear()
            queue.size = queue.made = 0
            queue.base = None

    def _forget_if_idle(self, key: Key, queue: _Queue) -> None:
        """The store knows where to continue."""
        with self._lock:
            if key[1] != NEWEST and not queue.lines:
                self._queues.pop(key, None)

    async def close(self, seconds: float) -> None:
        """Store the queued lines; stop after this time."""
        try:
            async with asyncio.timeout(seconds):
                while self.waiting and await self.step():
                    pass
        except (SkepError, TimeoutError):
            self.dropped += self.waiting
