"""Log lines of an agent: its own, those of downloader code and those of applications.

Runs in the agent's process. Lines wait in memory for a moment, then on disk within a budget, and
go to a center in batches, each until it is answered. `put` may be called from any thread and
never waits. A center that does not take log lines gets none.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from threading import Lock
from typing import NamedTuple

from skep.errors import SkepError
from skep.logs.agent.buffer import BufferBudget, LogBuffer
from skep.logs.line_format import make_entry
from skep.model.logs import LogBatch, LogEntry, LogSource, LogSourceKind
from skep.runtime.backoff import Backoff
from skep.runtime.clock import Clock
from skep.runtime.files import read_or_none, write_durably
from skep.runtime.retry import Pauses
from skep.runtime.signals import WakeUp
from skep.settings import LogSettings
from skep.wire.client import CenterClient
from skep.wire.messages import LOG_BATCHES, LOG_BYTES, LogAnswer, LogLines

log = logging.getLogger(__name__)

#: Lines that wait in memory for the disk, of all sources and of one.
QUEUED, QUEUED_OF_SOURCE = 10_000, 2_000
#: Seconds that a first line waits for others.
LINGER = 0.25
#: Bytes of one source in one call.
BATCH_BYTES = 256 * 1024
#: Bytes of downloader code and applications up to the end of a line.
LINE_BYTES = 64 * 1024
RESEND = Backoff(first=0.5, cap=30.0)
#: The number of the process: the fencing token of its lines.
_TOKEN = "process"  # noqa: S105 - a file's name


class AgentLogs:
    """`open` it, `run` it as a task, `close` it. `put` works before and after."""

    def __init__(
        self,
        agent: str,
        folder: Path,
        settings: LogSettings,
        client: CenterClient,
        clock: Clock,
        rng: Random,
    ) -> None:
        self._agent = agent
        self._folder = folder
        self._on = settings.store
        self._client = client
        self._clock = clock
        self._rng = rng
        self._own = LogSource(LogSourceKind.AGENT, agent, "", agent)
        budget = BufferBudget(settings.source_bytes, settings.spool_bytes)
        self.buffer = LogBuffer(folder, budget)
        self._token = 0
        self._lock = Lock()
        self._queue: deque[tuple[LogSource, LogEntry | _Output]] = deque()
        self._queued: Counter[LogSource] = Counter()
        #: Lines that did not fit into memory, by source, since the queue was stored last.
        self._missed: Counter[LogSource] = Counter()
        self._more = WakeUp(clock)
        self._stored = WakeUp(clock)
        self._now = WakeUp(clock)
        self._loop: asyncio.AbstractEventLoop | None = None
        #: Whether the center of this agent takes lines; unknown before it is registered.
        self._taken = False
        #: Lines that did not fit into memory, since the start.
        self.missed = 0

    @property
    def dropped(self) -> int:
        """Lines that no center will get, since the start."""
        return self.missed + self.buffer.dropped + self.buffer.refused

    def open(self) -> None:
        """Blocks. Raises OSError when the folder cannot be written."""
        if not self._on:
            return
        self.buffer.open()
        # Above every number that this folder, or an earlier folder of this agent, has used.
        saved = (read_or_none(self._folder / _TOKEN) or b"").strip()
        used = int(saved) if saved.isdigit() else 0
        self._token = max(used + 1, int(self._clock.now()))
        write_durably(self._folder / _TOKEN, b"%d\n" % self._token)

    def put(self, entry: LogEntry) -> None:
        """A line of the agent itself."""
        self._put(self._own, entry)

    def of_run(self, kind: LogSourceKind, run: str, name: str = "") -> Callable[[bytes], None]:
        """Takes the output of code of a run, in pieces."""
        source = LogSource(kind, name or run, run, self._agent)
        return _Lines(lambda line: self._put(source, _Output(self._clock.now(), line))).feed

    def code_wrote(self, run: str, text: str) -> None:
        """Lines of downloader code of a run."""
        ends = text if text.endswith("\n") else f"{text}\n"
        self.of_run(LogSourceKind.DOWNLOADER, run)(ends.encode("utf-8", "replace"))

    def _put(self, source: LogSource, line: LogEntry | _Output) -> None:
        """Output becomes a line in a thread: code that floods must not hold up the agent."""
        if not self._on:
            return
        with self._lock:
            if len(self._queue) >= QUEUED or self._queued[source] >= QUEUED_OF_SOURCE:
                self._missed[source] += 1
                self.missed += 1
                return
            self._queue.append((source, line))
            self._queued[source] += 1
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed: the process ends
                self._loop.call_soon_threadsafe(self._more.notify)

    def center_takes(self, taken: bool) -> None:
        """A center has accepted the agent, and says whether it takes lines."""
        self._taken = taken
        self._stored.notify()
        self._now.notify()

    async def run(self) -> None:
        """Store and send without end; storing never waits for sending."""
        self._loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._store_all())
            group.create_task(self._send_all())

    async def _store_all(self) -> None:
        while True:
            await asyncio.to_thread(self._store)
            self._stored.notify()
            await self._more.wait()
            await self._clock.sleep(LINGER)

    async def _send_all(self) -> None:
        pauses = Pauses(RESEND, self._rng)
        while True:
            if not self._taken or not self.buffer.waiting:
                await self._stored.wait()
            elif wait := await self._send():
                await self._now.wait(max(wait, pauses.failed()))
            else:
                pauses.succeeded()

    def _store(self) -> None:
        """From memory to disk."""
        with self._lock:
            lines, missed = list(self._queue), self._missed
            self._queue.clear()
            self._queued, self._missed = Counter(), Counter()
        by_source: dict[LogSource, list[LogEntry]] = {}
        for source, line in lines:
            entry = line.entry() if isinstance(line, _Output) else line
            by_source.setdefault(source, []).append(entry)
        for source, count in missed.items():
            said = f"{count:,} lines dropped: they came faster than they can be stored"
            entry = make_entry(self._clock.now(), logging.WARNING, said)
            by_source.setdefault(source, []).append(entry)
        for source, entries in by_source.items():
            with suppress(OSError):  # counted there
                self.buffer.append(source, self._token, entries)

    async def _send(self) -> float:
        """Seconds to wait before the next call; 0 = none."""
        batches = await asyncio.to_thread(self._batches)
        if not batches:
            return 0.0
        try:
            reply = await self._client.log_lines(LogLines(self._agent, batches, self.dropped))
        except SkepError as error:
            log.debug("log lines: %s", error.detail)
            return RESEND.first if error.retryable else RESEND.cap
        answered = list(zip(batches, reply.answers, strict=False))
        await asyncio.to_thread(self._settle, answered)
        return max((answer.wait for _, answer in answered), default=RESEND.first)

    def _batches(self) -> list[LogBatch]:
        found: list[LogBatch] = []
        size = 0
        for batch in self.buffer.batches(BATCH_BYTES):
            size += len(batch.lines)
            if found and (size > LOG_BYTES or len(found) >= LOG_BATCHES):
                break
            found.append(batch)
        return found

    def _settle(self, answered: list[tuple[LogBatch, LogAnswer]]) -> None:
        for batch, answer in answered:
            if answer.refused:
                self.buffer.refuse(batch)
            elif not answer.wait:
                self.buffer.acknowledge(batch, answer.next)

    async def flush(self, seconds: float) -> None:
        """Send what waits, for at most that time; the rest stays on disk."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await asyncio.to_thread(self._store)
                while self._taken and self.buffer.waiting and not await self._send():
                    pass

    def close(self) -> None:
        """Blocks. Lines that wait stay on disk for the next process."""
        if self._on and self._token:
            self._store()
            self.buffer.close()


class _Output(NamedTuple):
    """A line that code wrote."""

    at: float
    line: bytes

    def entry(self) -> LogEntry:
        return make_entry(self.at, logging.INFO, self.line)


class _Lines:
    """Cuts output into lines; a line that does not end is cut at a length."""

    def __init__(self, put: Callable[[bytes], None]) -> None:
        self._put = put
        self._rest = b""

    def feed(self, data: bytes) -> None:
        *whole, self._rest = (self._rest + data).split(b"\n")
        for line in whole:
            self._put(line)
        if len(self._rest) > LINE_BYTES:
            self._put(self._rest)
            self._rest = b""
