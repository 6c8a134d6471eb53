"""One warm child process, seen from the agent's event loop.

It may be trusted as far as its kernel limits go: what it says wrongly, or not in time, ends
it. Requests that were only waiting in it are given back to whoever sent them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any, Protocol, cast

from skep.downloaders.code.child_messages import Bad, Breach, End, Hello, Reader, written
from skep.downloaders.code.child_start import Child
from skep.downloaders.code.inside.talk import Ask, Load, Skip
from skep.downloaders.ports import Fetched
from skep.model.request import Work

log = logging.getLogger(__name__)

#: Requests are sent ahead for so many seconds of work, as measured; it saves waking up.
AHEAD_SECONDS = 0.02
WINDOW = 32
#: Coroutines side by side in one child.
TOGETHER = 16
#: What waits behind a request that takes longer is done by others.
STALL_SECONDS = 0.5
#: A child ends its own coroutines in time; one that does not is ended so much later.
GRACE_SECONDS = 1.0
#: Between the end of the line and the end of the process.
LAST_WORDS_SECONDS = 0.25
_WEIGHT = 0.2


class ChildRequest:
    """A request on its way through the children of a run."""

    __slots__ = ("began", "done", "tries", "work")

    def __init__(self, work: Work, done: Callable[[Fetched], None]) -> None:
        self.work = work
        self.done = done
        #: When it began to run, by the agent's clock.
        self.began = 0.0
        #: Children that ended while it ran in them beside others.
        self.tries = 0


class Owner(Protocol):
    """Whom a worker tells what happens."""

    def loaded(self) -> None:
        """A worker takes requests now."""

    def unusable(self, worker: Worker, detail: str) -> None:
        """The code could not be loaded."""

    def answered(self, worker: Worker, job: ChildRequest, end: End) -> None:
        """One request has ended."""

    def gone(self, worker: Worker, detail: str, *, blame: bool) -> None:
        """The process is ending; what is in `flying` has no answer, and may be to blame."""


class Worker(asyncio.Protocol):
    """`open` it; `send` while it has room; `kill` ends it for good."""

    def __init__(
        self, child: Child, limit: int, owner: Owner, monotonic: Callable[[], float]
    ) -> None:
        self._child = child
        self._reader = Reader(limit)
        self._owner = owner
        self._monotonic = monotonic
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._ending = False
        self._serial = 0
        self._average = AHEAD_SECONDS
        #: Sent and not answered, the one that runs first.
        self.flying: dict[int, ChildRequest] = {}
        #: Taken back after they were sent: an answer may still come.
        self._withdrawn: set[int] = set()
        self.ready = False
        self.together = False
        self.opened = monotonic()
        #: Done when nothing of the process is left.
        self.buried: asyncio.Future[int] = self._loop.create_future()
        self._loop.add_reader(child.pidfd, self._ended)

    async def open(self, load: Load) -> None:
        transport, _ = await self._loop.create_unix_connection(lambda: self, sock=self._child.sock)
        transport.write(written(load))

    @property
    def room(self) -> int:
        """How many more requests it takes now."""
        if not self.ready or self._ending:
            return 0
        if self.together:
            return TOGETHER - len(self.flying)
        window = min(max(int(AHEAD_SECONDS / self._average), 1), WINDOW)
        return window - len(self.flying)

    def send(self, jobs: Iterable[ChildRequest], headers: dict[str, str]) -> None:
        """Hand requests over, all in one piece."""
        asks = []
        now = self._monotonic()
        for job in jobs:
            self._serial += 1
            work = job.work
            job.began = now
            self.flying[self._serial] = job
            merged = {**headers, **work.headers} if headers else work.headers
            asks.append(Ask(self._serial, work.uri, work.method, merged, work.body, work.meta))
        if self._transport is not None:
            self._transport.write(written(*asks))

    def overdue(self, limit: float) -> list[ChildRequest]:
        """Requests that have run too long; they are no longer in flight."""
        now = self._monotonic()
        if self.together:
            limit += GRACE_SECONDS
        running = list(self.flying) if self.together else list(self.flying)[:1]
        late = [serial for serial in running if now - self.flying[serial].began > limit]
        return [self.flying.pop(serial) for serial in late]

    def take_stalled(self) -> list[ChildRequest]:
        """What waits behind a request that takes its time."""
        if self.together or len(self.flying) <= 1:
            return []
        first, *others = self.flying
        if self._monotonic() - self.flying[first].began < STALL_SECONDS:
            return []
        if self._transport is not None:
            self._transport.write(written(Skip(others)))
        self._withdrawn.update(others)
        self._average = STALL_SECONDS
        return [self.flying.pop(serial) for serial in others]

    def kill(self) -> None:
        """End the process and all that it started; never blocks."""
        if self._ending:
            return
        self._ending = True
        if self._child.inner is None:
            self._loop.run_in_executor(None, self._child.kill)
        else:
            self._child.kill()

    # --- called by the event loop ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self._ending:
            return
        try:
            for message in self._reader.feed(data):
                self._hear(message)
        except Breach as breach:
            log.warning("user code broke the line to its agent: %s", breach)
            self._leave(f"the code broke the line to the agent: {breach}")

    def connection_lost(self, _error: Exception | None) -> None:
        # Mostly it has ended, and how it ended is known in a moment.
        self._loop.call_later(
            LAST_WORDS_SECONDS, self._leave, "the process closed its line to the agent"
        )

    def _hear(self, message: Hello | Bad | End) -> None:
        if isinstance(message, End) and self.ready:
            self._answer(message)
        elif isinstance(message, Hello) and not self.ready:
            self.ready, self.together = True, message.together
            self._owner.loaded()
        elif isinstance(message, Bad) and not self.ready:
            said = f" | {message.messages}" if message.messages else ""
            self.kill()
            self._owner.unusable(self, f"the code cannot be loaded: {message.detail}{said}")
        else:
            raise Breach("a message out of turn")

    def _answer(self, end: End) -> None:
        job = self.flying.pop(end.id, None)
        if job is None:
            if end.id not in self._withdrawn:
                raise Breach("an answer that nobody asked for")
            self._withdrawn.discard(end.id)
            return
        self._average += _WEIGHT * (end.elapsed_us / 1e6 - self._average)
        self._average = max(self._average, 1e-6)
        if self.flying and not self.together:
            next(iter(self.flying.values())).began = self._monotonic()
        self._owner.answered(self, job, end)
        if end.leaving:
            self._leave("its memory was full", blame=False)

    def _leave(self, detail: str, *, blame: bool = True) -> None:
        if not self._ending:
            self.kill()
            self._owner.gone(self, detail, blame=blame)

    def _ended(self) -> None:
        """The process is dead: clean up behind it, in a thread."""
        self._loop.remove_reader(self._child.pidfd)
        self._leave(f"the process ended with {self._child.ending()}")
        if self._transport is not None:
            self._transport.abort()
        burial = self._loop.run_in_executor(None, self._child.reap)
        burial.add_done_callback(self._rest)

    def _rest(self, burial: asyncio.Future[Any]) -> None:
        if not self.buried.done():
            code = 0 if burial.cancelled() or burial.exception() else burial.result()
            self.buried.set_result(code)
