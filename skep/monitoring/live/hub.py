"""All streams of one center, and one poller for each watched list or object. Run by centers.

A poller reads the store, compares, and offers the difference to all streams that watch the same. A
signal only makes it read earlier: a lost one costs a delay, never a wrong page. Pollers take turns,
and pause in proportion to the time that they read.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence

from skep.errors import SkepError, TooManyStreams
from skep.model.people.scope import EVERYTHING, Scope
from skep.monitoring.live.snapshots import Snapshot
from skep.monitoring.live.stream import Stream
from skep.monitoring.live.watches import Read, WatchKinds
from skep.runtime.clock import Clock
from skep.runtime.signals import Signal, within

log = logging.getLogger(__name__)

#: Seconds between two reads without a signal, and the minimum between two reads.
POLL_EVERY = 0.5
LEAST_PAUSE = 0.25
#: Seconds of pause for each second of reading: all pollers together use little of the store's
#: readers.
REST = 4.0
#: The longest rest: a store that was frozen for a minute is not slow afterwards.
LONGEST_REST = 5.0
#: Differences that a poller remembers, for clients that connect again.
HISTORY = 32
#: Lists and objects that are watched at one center.
POLLERS_LIMIT = 200
#: A watch as the client wrote it, and the scope in which it is read.
_Watched = tuple[str, Scope]


class StreamLimits:
    """Counts streams, in total and by address."""

    def __init__(
        self, total: int, per_address: int, show: Callable[[int], None] = lambda _: None
    ) -> None:
        """`show` is called with the number of open streams when it changes."""
        self._show = show
        self._total = total
        self._per_address = per_address
        self._open: Counter[str] = Counter()

    def take(self, address: str) -> None:
        """Raises TooManyStreams."""
        if self._open.total() >= self._total:
            raise TooManyStreams(
                f"{self._total} event streams are open at this center, which is its limit; close"
                " some, or connect to another center"
            )
        if self._open[address] >= self._per_address:
            raise TooManyStreams(
                f"{self._per_address} event streams are open from {address or 'this address'},"
                " which is the limit for one address; watch several things on one stream"
            )
        self._open[address] += 1
        self._show(self.open)

    def free(self, address: str) -> None:
        self._open[address] -= 1
        if self._open[address] <= 0:
            del self._open[address]
        self._show(self.open)

    @property
    def open(self) -> int:
        return self._open.total()


class LiveHub:
    """Opens and closes streams; a poller lives while at least one stream watches its list."""

    def __init__(
        self,
        kinds: WatchKinds,
        clock: Clock,
        changes: Signal,
        closing: asyncio.Event,
        cut: Callable[[], None] = lambda: None,
    ) -> None:
        self._cut = cut
        self._kinds = kinds
        self._clock = clock
        self._changes = changes
        self._closing = closing
        self._turn = asyncio.Lock()
        self._pollers: dict[_Watched, _Poller] = {}

    async def open(
        self,
        watches: Sequence[str],
        last: str,
        check: Callable[[], Awaitable[object]],
        scope: Scope = EVERYTHING,
    ) -> Stream:
        """A stream with the lists as they are now, of what is inside the scope. `last` is the id of
        the last event that the client got: what it has is not sent again. Raises InvalidInput and
        TooManyStreams."""
        names = list(dict.fromkeys(watches))
        readers = {name: self._kinds.open(name, scope) for name in names}
        new = [name for name in names if (name, scope) not in self._pollers]
        if len(self._pollers) + len(new) > POLLERS_LIMIT:
            raise TooManyStreams(
                f"{POLLERS_LIMIT} different lists are watched at this center, which is its limit;"
                " watch a list that others watch, or try again later"
            )
        stream = Stream(names, self._clock, check, self._closing, self._cut, scope)
        known = last.split(".")
        had = known if len(known) == len(names) else [""] * len(names)
        try:
            for name, digest in zip(names, had, strict=True):
                await self._poller((name, scope), readers[name]).join(stream, digest)
        except BaseException:
            self.close(stream)
            raise
        return stream

    def close(self, stream: Stream) -> None:
        """The client is gone. May be called twice."""
        for name in stream.watches:
            watched = name, stream.scope
            poller = self._pollers.get(watched)
            if poller is not None and poller.leave(stream):
                del self._pollers[watched]

    def stop(self) -> None:
        """End every stream at once; `closing` is set."""
        for poller in list(self._pollers.values()):
            poller.stop()
        self._pollers.clear()

    @property
    def watched(self) -> int:
        """Number of lists that are watched."""
        return len(self._pollers)

    def _poller(self, watched: _Watched, read: Read) -> _Poller:
        if watched not in self._pollers:
            parts = self._clock, self._changes, self._turn
            self._pollers[watched] = _Poller(watched[0], read, *parts)
        return self._pollers[watched]


class _Poller:
    """Reads one list for all streams that watch it."""

    def __init__(
        self, name: str, read: Read, clock: Clock, changes: Signal, turn: asyncio.Lock
    ) -> None:
        self._name = name
        self._read = read
        self._clock = clock
        self._changes = changes
        self._turn = turn
        self._streams: set[Stream] = set()
        self._now: Snapshot | None = None
        self._past: deque[Snapshot] = deque(maxlen=HISTORY)
        self._joining = asyncio.Lock()
        #: Streams that wait for the first read.
        self._coming = 0
        self._task: asyncio.Task[None] | None = None

    async def join(self, stream: Stream, digest: str) -> None:
        """Add a stream, with the list as it is, or with what has changed since `digest`."""
        now = await self._first()
        self._streams.add(stream)
        old = next((one for one in self._past if one.digest == digest), None)
        if digest == now.digest:
            stream.has(self._name, digest)
        elif old is not None:
            stream.offer(self._name, "change", now.digest, now.change(self._name, old))
        else:
            stream.offer(self._name, "page", now.digest, now.page(self._name))

    async def _first(self) -> Snapshot:
        """The list as it is; the first stream reads it."""
        self._coming += 1
        try:
            async with self._joining:
                if self._now is None:
                    await self._look()
                if self._task is None:
                    self._task = asyncio.create_task(self._keep())
        finally:
            self._coming -= 1
        assert self._now is not None  # noqa: S101 - `_look` has set it
        return self._now

    def leave(self, stream: Stream) -> bool:
        """True when no stream watches any more; then the poller has stopped."""
        self._streams.discard(stream)
        if self._streams or self._coming:
            return False
        self.stop()
        return True

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
        for stream in self._streams:
            stream.wake()

    async def _keep(self) -> None:
        while True:
            changes = self._changes.subscribe()
            took = 0.0
            try:
                took = await self._look()
            except SkepError as error:  # the store is unavailable: the next read finds what is new
                log.debug("%s cannot be read: %s", self._name, error.detail)
            except Exception:
                log.exception("unexpected error in live updates of %s; continuing", self._name)
            await self._clock.sleep(max(LEAST_PAUSE, min(took * REST, LONGEST_REST)))
            await within(changes, POLL_EVERY - LEAST_PAUSE)

    async def _look(self) -> float:
        """Read the list, and offer what is different; returns the seconds that it took."""
        async with self._turn:
            begun = self._clock.monotonic()
            now = Snapshot(await self._read(), self._now)
            took = self._clock.monotonic() - begun
        before, self._now = self._now, now
        if before is None or before.digest == now.digest:
            return took
        self._past.append(before)
        data = now.change(self._name, before)
        for stream in self._streams:
            stream.offer(self._name, "change", now.digest, data)
        return took
