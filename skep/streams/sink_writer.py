"""Moves records from where they are kept into a sink, in order, until none is left.

Run by a center for the items of a run, and by pipelines. No record is skipped, none is
written before an earlier one, and a refused one is reported before the position moves past it.
After a crash a refusal may be reported twice, and so may records of sinks that cannot keep
their position. Without a number of tries it retries a sink that is away without end.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import warnings
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from skep.errors import ConfigurationError, Unavailable
from skep.runtime.backoff import Backoff
from skep.runtime.clock import Clock
from skep.runtime.log_repeats import Repeats
from skep.runtime.retry import Attempts, retry
from skep.streams.ports import Record, Refused, Sink
from skep.streams.position import Positions

Read = Callable[[int, int], Awaitable[Sequence[Record]]]
Dead = Callable[[Refused], Awaitable[None]]
T = TypeVar("T")
log = logging.getLogger(__name__)

REASON_SHOWN = 500
#: Seconds between two log lines about a sink that stays away.
SAY_EVERY = 60.0


class Counts(msgspec.Struct):
    """What a sink writer has done since it was made."""

    written: int = 0
    dead: int = 0
    retries: int = 0


class Stopped(Exception):
    """Inside a sink writer: `stop` was called."""


class SinkWriter:
    """One sink and its source. `read(after, limit)` gives records in order."""

    def __init__(
        self,
        sink: Sink,
        read: Read,
        clock: Clock,
        rng: Random,
        *,
        dead: Dead,
        batch: int = 500,
        memory: Positions | None = None,
        idle: float = 1.0,
        backoff: Backoff | None = None,
        tries: int | None = None,
    ) -> None:
        """`memory`: where the position is kept beside the sink. `tries`: of one call, before
        its Unavailable ends the writer; None = without end."""
        self._sink, self._read, self._dead = sink, read, dead
        self._clock, self._rng = clock, rng
        self._batch, self._memory, self._idle = batch, memory, idle
        self._backoff = backoff or Backoff(first=0.2, cap=30.0)
        self._tries = tries
        self._complaints = Repeats(clock, SAY_EVERY)
        self._stop = asyncio.Event()
        self._wake = asyncio.Event()
        self._is_open = False
        self.position = 0
        self.counts = Counts()

    def stop(self) -> None:
        """Ends at the next chance, also while it waits; the batch under way is finished."""
        self._stop.set()

    def wake(self) -> None:
        """There may be something to read."""
        self._wake.set()

    async def run_until(self, done: Callable[[], bool]) -> bool:
        """Work until `done()` and nothing is left to read; False when it was stopped first.

        Raises ConfigurationError for a sink that will not get better, and Unavailable when
        its tries are used up. Opens the sink and leaves it open: `close` it afterwards.
        """
        try:
            await self._open()
            while not self._stop.is_set():
                last = done()  # asked before reading: what came before it is then read
                if await self._step():
                    continue
                if last:
                    return True
                if not done():  # else it came true while nothing was left: one more look
                    await self._rest()
        except Stopped:
            pass
        return False

    async def close(self) -> None:
        await self._sink.close()
        self._is_open = False

    # -- one batch

    async def _open(self) -> None:
        if self._is_open:
            return
        kept = await self._patiently(self._sink.open)
        known = await self._patiently(self._memory.load) if self._memory else 0
        self.position = max(kept, known)
        self._is_open = True

    async def _step(self) -> bool:
        """Whether there was something to move."""
        self._wake.clear()
        read = functools.partial(self._read, self.position, self._batch)
        records = list(await self._patiently(read))
        self._check_order(records)
        if records:
            await self._deliver(records)
        return bool(records)

    def _check_order(self, records: Sequence[Record]) -> None:
        before = self.position
        for record in records:
            if record.position <= before:
                raise ValueError(f"the source gave position {record.position} after {before}")
            before = record.position

    async def _deliver(self, records: list[Record]) -> None:
        """All of them, in order; a part that fails is taken in halves."""
        parts = [records]
        while parts:
            part = parts.pop()
            refused, is_bad = await self._write(part)
            if is_bad and len(part) > 1:
                middle = len(part) // 2
                parts += [part[middle:], part[:middle]]
                continue
            await self._dead_letter(refused)
            gone = {one.position for one in refused}
            rest = [record for record in part if record.position not in gone]
            if gone and rest:
                parts.append(rest)
                continue
            self.counts.written += len(rest)
            await self._remember(part[-1].position)
        await self._remember(records[-1].position)

    async def _write(self, part: list[Record]) -> tuple[list[Refused], bool]:
        """(the refused, whether the batch is bad for a reason that names no record)."""
        try:
            return await self._patiently(lambda: self._sink.write(part)), False
        except (ConfigurationError, Stopped, Unavailable):
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, one record must not stop all
            reason = f"{type(error).__name__}: {error}"[:REASON_SHOWN]
            log.warning("sink %s: %s", self._sink.describe(), reason)
            return [Refused(part[0].position, reason)] if len(part) == 1 else [], True

    async def _dead_letter(self, refused: Sequence[Refused]) -> None:
        for one in refused:
            await self._patiently(functools.partial(self._dead, one))
            self.counts.dead += 1

    async def _remember(self, position: int) -> None:
        if position <= self.position:
            return
        if self._memory is not None:
            await self._patiently(functools.partial(self._memory.save, position))
        self.position = position

    # -- waiting

    async def _patiently(self, call: Callable[[], Awaitable[T]]) -> T:
        attempts, before = Attempts(self._backoff, self._rng, self._tries), self.counts.retries

        def decide(error: Unavailable, failures: int) -> float | None:
            self.counts.retries += 1
            pause = attempts.pause(failures)
            if pause is not None:
                self._complain(error)
            return pause

        answer = await retry(call, Unavailable, decide, self._pause)
        if self.counts.retries > before and self._complaints.over():
            log.warning("sink %s answers again", self._sink.describe())
        return answer

    def _complain(self, error: Unavailable) -> None:
        """One line at once, then one a minute."""
        if self._tries is None and (times := self._complaints.due()):
            since = f" ({times} failed tries since the last line)" if times > 1 else ""
            log.warning("retrying until it answers: %s%s", error.detail, since)

    async def _pause(self, seconds: float) -> None:
        await self._wait(seconds, self._stop)
        if self._stop.is_set():
            raise Stopped

    async def _rest(self) -> None:
        await self._wait(self._idle, self._stop, self._wake)

    async def _wait(self, seconds: float, *events: asyncio.Event) -> None:
        """Until the time is over or one of the events is set."""
        calls: list[Coroutine[Any, Any, object]] = [event.wait() for event in events]
        waits = [asyncio.create_task(call) for call in (*calls, self._clock.sleep(seconds))]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """The names of earlier releases; they work for one more release."""
        if new := {"SinkPump": "SinkWriter"}.get(name):
            warnings.warn(f"{__name__}.{name} is now {new}", DeprecationWarning, stacklevel=2)
            return globals()[new]
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
