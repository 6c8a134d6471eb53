"""One child process, as the agent's event loop uses it.

It is trusted only within its kernel limits: an invalid or late message ends it. Requests that
only waited in it are returned to the owner.
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

#: Seconds of measured work for which requests are sent ahead; it saves wake-ups.
AHEAD_SECONDS = 0.02
WINDOW = 32
#: Concurrent coroutines in one child.
TOGETHER = 16
#: Seconds of one request after which those behind it are given to other children.
STALL_SECONDS = 0.5
#: A child ends its own coroutines in time; if it does not, it is killed this many seconds later.
GRACE_SECONDS = 1.0
#: Seconds between the end of the channel and the end of the process.
LAST_WORDS_SECONDS = 0.25
_WEIGHT = 0.2


class ChildRequest:
    """A request in the children of a run."""

    __slots__ = ("began", "done", "tries", "work")

    def __init__(self, work: Work, done: Callable[[Fetched], None]) -> None:
        self.work = work
        self.done = done
        #: When it started to run, by the agent's clock.
        self.began = 0.0
        #: Children that crashed while it ran in them with other requests.
        self.tries = 0


class Owner(Protocol):
    """Receives the events of a worker."""

    def loaded(self) -> None:
        """A worker accepts requests now."""

    def unusable(self, worker: Worker, detail: str) -> None:
        """The code could not be loaded."""

    def answered(self, worker: Worker, job: ChildRequest, end: End) -> None:
        """One request has ended."""

    def gone(self, worker: Worker, detail: str, *, blame: bool) -> None:
        """The process is ending; the requests in `sent` have no answer and may be the cause."""


class Worker(asyncio.Protocol):
    """Call `open`; `send` while it has room; `kill` ends it permanently."""

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
        #: Sent and not answered; the first one runs.
        self.sent: dict[int, ChildRequest] = {}
        #: Withdrawn after they were sent: an answer may still come.
        self._withdrawn: set[int] = set()
        self.ready = False
        self.together = False
        self.opened = monotonic()
        #: Done when the process is reaped.
        self.reaped: asyncio.Future[int] = self._loop.create_future()
        self._loop.add_reader(child.pidfd, self._ended)

    async def open(self, load: Load) -> None:
        transport, _ = await self._loop.create_unix_connection(lambda: self, sock=self._child.sock)
        transport.write(written(load))

    @property
    def room(self) -> int:
        """How many more requests it accepts now."""
        if not self.ready or self._ending:
            return 0
        if self.together:
            return TOGETHER - len(self.sent)
        window = min(max(int(AHEAD_SECONDS / self._average), 1), WINDOW)
        return window - len(self.sent)

    def send(self, jobs: Iterable[ChildRequest], headers: dict[str, str]) -> None:
        """Send requests in one write."""
        asks = []
        now = self._monotonic()
        for job in jobs:
            self._serial += 1
            work = job.work
            job.began = now
            self.sent[self._serial] = job
            merged = {**headers, **work.headers} if headers else work.headers
            asks.append(Ask(self._serial, work.uri, work.method, merged, work.body, work.meta))
        if self._transport is not None:
            self._transport.write(written(*asks))

    def overdue(self, limit: float) -> list[ChildRequest]:
        """Requests that have run too long; they are removed from `sent`."""
        now = self._monotonic()
        if self.together:
            limit += GRACE_SECONDS
        running = list(self.sent) if self.together else list(self.sent)[:1]
        late = [serial for serial in running if now - self.sent[serial].began > limit]
        return [self.sent.pop(serial) for serial in late]

    def take_stalled(self) -> list[ChildRequest]:
        """Withdraw the requests behind a slow one."""
        if self.together or len(self.sent) <= 1:
            return []
        first, *others = self.sent
        if self._monotonic() - self.sent[first].began < STALL_SECONDS:
            return []
        if self._transport is not None:
            self._transport.write(written(Skip(others)))
        self._withdrawn.update(others)
        self._average = STALL_SECONDS
        return [self.sent.pop(serial) for serial in others]

    def kill(self) -> None:
        """End the process and all its descendants; never blocks."""
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
            log.warning("user code sent an invalid message to its agent: %s", breach)
            self._leave(f"the code sent an invalid message to the agent: {breach}")

    def connection_lost(self, _error: Exception | None) -> None:
        # Mostly the process has ended, and its exit code is known in a moment.
        self._loop.call_later(
            LAST_WORDS_SECONDS, self._leave, "the process closed its channel to the agent"
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
            raise Breach("an unexpected message")

    def _answer(self, end: End) -> None:
        job = self.sent.pop(end.id, None)
        if job is None:
            if end.id not in self._withdrawn:
                raise Breach("an answer without a request")
            self._withdrawn.discard(end.id)
            return
        self._average += _WEIGHT * (end.elapsed_us / 1e6 - self._average)
        self._average = max(self._average, 1e-6)
        if self.sent and not self.together:
            next(iter(self.sent.values())).began = self._monotonic()
        self._owner.answered(self, job, end)
        if end.leaving:
            self._leave("its memory was full", blame=False)

    def _leave(self, detail: str, *, blame: bool = True) -> None:
        if not self._ending:
            self.kill()
            self._owner.gone(self, detail, blame=blame)

    def _ended(self) -> None:
        """The process has ended: clean up in a thread."""
        self._loop.remove_reader(self._child.pidfd)
        self._leave(f"the process ended with {self._child.ending()}")
        if self._transport is not None:
            self._transport.abort()
        reaping = self._loop.run_in_executor(None, self._child.reap)
        reaping.add_done_callback(self._rest)

    def _rest(self, reaping: asyncio.Future[Any]) -> None:
        if not self.reaped.done():
            code = 0 if reaping.cancelled() or reaping.exception() else reaping.result()
            self.reaped.set_result(code)
