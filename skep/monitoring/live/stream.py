"""One client's stream of events: a bounded buffer between the pollers and its connection.

Run by centers, in the event loop. A client that reads too slowly is told to reload and cut off;
its buffer never grows beyond its limit.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec

from skep.errors import SkepError
from skep.model.people.scope import EVERYTHING, Scope
from skep.runtime.clock import Clock
from skep.runtime.signals import within

#: Events and bytes that wait for one client.
EVENTS_LIMIT = 64
BYTES_LIMIT = 4 * 1024 * 1024
#: Seconds between two checks of the client's token and role.
CHECK_EVERY = 3.0
#: Seconds without an event after which a comment is sent, so that proxies keep the connection.
COMMENT_EVERY = 15.0
#: Milliseconds after which a browser connects again.
RETRY = 2000


class Stream:
    """`watches` in the order in which the client named them; `check` raises when the client may no
    longer read; `cut` counts a client that was cut off; `scope` is that of all its lists."""

    def __init__(
        self,
        watches: list[str],
        clock: Clock,
        check: Callable[[], Awaitable[object]],
        closing: asyncio.Event,
        cut: Callable[[], None] = lambda: None,
        scope: Scope = EVERYTHING,
    ) -> None:
        self._cut = cut
        self.watches = watches
        self.scope = scope
        self._clock = clock
        self._check = check
        self._closing = closing
        #: The digest of each list that the client has after the last event that it was sent.
        self._has = dict.fromkeys(watches, "")
        self._waiting: deque[tuple[str, str, str, bytes]] = deque()
        self._size = 0
        self._overflow = False
        self._news = asyncio.Event()

    def offer(self, watch: str, event: str, digest: str, data: bytes) -> None:
        """Put an event into the buffer; called by pollers, returns at once."""
        if self._overflow:
            return
        self._waiting.append((watch, event, digest, data))
        self._size += len(data)
        if len(self._waiting) > EVENTS_LIMIT or self._size > BYTES_LIMIT:
            self._overflow = True
            self._cut()
            self._waiting.clear()
        self._news.set()

    def has(self, watch: str, digest: str) -> None:
        """The client has this list already."""
        self._has[watch] = digest

    def wake(self) -> None:
        """Something other than an event has happened: the center stops."""
        self._news.set()

    async def parts(self, seconds: float = 0.0) -> AsyncIterator[bytes]:
        """The bytes of the stream, until the client is cut off or the center stops, or for this
        many seconds; 0 = without a limit."""
        yield b"retry: %d\n\n" % RETRY
        checked = commented = begun = self._clock.monotonic()
        while True:
            self._news.clear()
            now = self._clock.monotonic()
            if now - checked >= CHECK_EVERY:
                checked = now
                if (problem := await self._refused()) is not None:
                    yield _plain("end", problem)
                    return
            if self._closing.is_set():
                yield _plain("end", "the center stops; connect again")
                return
            if self._overflow:
                yield _plain("reload", "events were read too slowly; load the page again")
                return
            if self._waiting:
                commented = now
                yield self._next()
                continue
            if seconds and now - begun >= seconds:
                return
            if now - commented >= COMMENT_EVERY:
                commented = now
                yield b":\n\n"
            left = begun + seconds - now if seconds else CHECK_EVERY
            await within(self._news, min(left, CHECK_EVERY))

    async def _refused(self) -> str | None:
        try:
            await self._check()
        except SkepError as error:
            # While the store is away the role is not known: the next check decides.
            return None if error.retryable else error.detail
        return None

    def _next(self) -> bytes:
        watch, event, digest, data = self._waiting.popleft()
        self._size -= len(data)
        self._has[watch] = digest
        number = ".".join(self._has.values()).encode()
        return b"id: %b\nevent: %b\ndata: %b\n\n" % (number, event.encode(), data)


def _plain(event: str, reason: str) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (event.encode(), msgspec.json.encode({"reason": reason}))
