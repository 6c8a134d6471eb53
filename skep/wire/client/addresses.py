"""The addresses of one cluster: which center is called next, and the open calls of each.

Used by `HttpTransport`, on its event loop. A heartbeat that the current center does not answer
in time is also sent to the next one. When that one answers first, the client moves there, and
open calls to the silent center are aborted, so that they move too. It never moves away from a
center that is merely slower than usual: the first answer decides.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from skep.errors import CenterUnreachable, SkepError, Unauthorized
from skep.runtime.lazy_certificates import aiohttp

T = TypeVar("T")
Attempt = Callable[[str], Awaitable[T]]

#: Seconds without an answer after which the next center gets the same heartbeat.
HEDGE_AFTER = 1.25
NETWORK_ERRORS = (aiohttp.ClientError, asyncio.TimeoutError, OSError)


class Addresses:
    """`each` tries one address after the other, `hedged` two at the same time."""

    def __init__(self, urls: Sequence[str], moved: Callable[[], None]) -> None:
        """`moved` is called when the client has left a silent center."""
        self.urls = [url.rstrip("/") for url in urls]
        self.at = 0
        self._moved = moved
        #: By address: a scope for each open call, which ends the call when it is rescheduled.
        self._open: list[set[asyncio.Timeout]] = [set() for _ in self.urls]

    @property
    def current(self) -> str:
        return self.urls[self.at]

    async def each(self, path: str, attempt: Attempt[T]) -> T:
        """Try each address once, starting with the one that worked last."""
        failure: SkepError | None = None
        for at in self._in_turn():
            try:
                async with asyncio.timeout(None) as scope:
                    with self._noted(at, scope):
                        return await attempt(self.urls[at] + path)
            except NETWORK_ERRORS as error:
                told = f"no center answers at {self.urls[at]}: {words(error)}"
                failure = failure or CenterUnreachable(told)
            except SkepError as error:
                if isinstance(error, Unauthorized):
                    # Another center may be behind this address: the next call goes to the next
                    # one.
                    self.at = (self.at + 1) % len(self.urls)
                if not error.retryable:
                    raise
                failure = error
            self._leave(at)
        raise failure or CenterUnreachable("no address of a center was given")

    async def hedged(self, path: str, attempt: Attempt[T]) -> T:
        """As `each`; but when the current center is silent, the next one is called as well, and the
        first good answer counts."""
        if len(self.urls) == 1:
            return await self.each(path, attempt)
        old = self.at
        first = asyncio.ensure_future(self.each(path, attempt))
        second: asyncio.Future[T] | None = None
        try:
            await asyncio.wait((first,), timeout=HEDGE_AFTER)
            if not first.done() and self.at == old:
                new = (old + 1) % len(self.urls)
                second = asyncio.ensure_future(self._aside(new, path, attempt))
                await asyncio.wait((first, second), return_when=asyncio.FIRST_COMPLETED)
            if second is None or first.done() or not _answered(second):
                return await first
            self._move(old)
            return second.result()
        finally:
            await _end(first, second)

    async def _aside(self, at: int, path: str, attempt: Attempt[T]) -> T:
        return await attempt(self.urls[at] + path)

    def _move(self, old: int) -> None:
        self._leave(old)
        now = asyncio.get_running_loop().time()
        for scope in self._open[old]:
            scope.reschedule(now)
        self._moved()

    @contextmanager
    def _noted(self, at: int, scope: asyncio.Timeout) -> Iterator[None]:
        self._open[at].add(scope)
        try:
            yield
        finally:
            self._open[at].discard(scope)

    def _in_turn(self) -> list[int]:
        count = len(self.urls)
        return [(self.at + step) % count for step in range(count)]

    def _leave(self, at: int) -> None:
        """The next call starts at another address. Calls that failed in parallel leave one address
        once: two steps with two addresses would lead back to the dead one."""
        if self.at == at:
            self.at = (at + 1) % len(self.urls)


def _answered(call: asyncio.Future[T]) -> bool:
    """Whether a center has answered, also with a refusal, but not that it is unavailable."""
    error = call.exception()
    return error is None or (isinstance(error, SkepError) and not error.retryable)


async def _end(*calls: asyncio.Future[T] | None) -> None:
    for call in calls:
        if call is not None and not call.done():
            call.cancel()
    await asyncio.gather(*(call for call in calls if call is not None), return_exceptions=True)


def words(error: BaseException) -> str:
    """A readable text: some of these errors have no text, others name internals."""
    if isinstance(error, aiohttp.ClientConnectorError) and not isinstance(error, ssl.SSLError):
        cause = error.os_error
        if isinstance(cause, socket.gaierror):
            return f"the name {error.host!r} has no address ({cause.strerror})"
        if cause.errno:
            return os.strerror(cause.errno)
    return str(error) or ("timed out" if isinstance(error, TimeoutError) else repr(error))
