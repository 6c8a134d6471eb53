"""Calls the code of a spider, whatever its kind, with a time limit.

Runs in the spider's process. Plain code is interrupted by an alarm signal, which Python
allows in the main thread only (elsewhere plain code has no limit); `async` code by the
event loop, with the alarm behind it for code that never awaits.
"""

from __future__ import annotations

import asyncio
import inspect
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType, GeneratorType
from typing import Any, Self

from skep.spiders.authoring.item import is_item
from skep.spiders.authoring.request import Request

#: Seconds after which code that catches the first alarm gets another one.
ALARM_AGAIN = 1.0
#: Seconds that the event loop has to end `async` code before the alarm does.
ALARM_MARGIN = 2.0


class TooSlow(BaseException):
    """A callback used up its time. Not an Exception: `except Exception` in the spider's
    code must not catch it."""


class Caller:
    """Calls with a limit of `seconds` (0 = none) each. Use it as a context manager: it puts
    the signal handler back at the end."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._before: Any = None
        self._armed = False
        #: Code of the spider runs now: an alarm outside of it is late and is ignored.
        self._inside = False

    def __enter__(self) -> Self:
        if self._seconds and threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGALRM, self._alarm)
            self._armed = True
        return self

    def __exit__(self, *_: object) -> None:
        if self._armed:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, self._before)
            self._armed = False

    async def results(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> list[Any]:
        """Everything that a callback returned or yielded, in order, as one flat list."""
        with self.limit():
            found = call(*args, **kwargs)
            if type(found) is GeneratorType:
                found = list(found)
        if inspect.isawaitable(found) or inspect.isasyncgen(found):
            found = await self._awaited(found)
        return flat(found)

    async def _awaited(self, found: Any) -> Any:
        with self.limit(ALARM_MARGIN):
            try:
                async with asyncio.timeout(self._seconds or None) as timer:
                    if inspect.isasyncgen(found):
                        return [one async for one in found]
                    return await found
            except TimeoutError:
                if timer.expired():
                    raise TooSlow from None
                raise

    @contextmanager
    def limit(self, margin: float = 0.0) -> Iterator[None]:
        """An alarm around plain code."""
        if not self._armed:
            yield
            return
        self._inside = True
        signal.setitimer(signal.ITIMER_REAL, self._seconds + margin, ALARM_AGAIN)
        # Two steps: an alarm that rings in the first has the second behind it, and the next
        # one rings a second later. Left on, it would end something else, at any moment.
        try:
            try:
                yield
            finally:
                self._inside = False
        finally:
            self._inside = False
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _alarm(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - signal's names
        if self._inside:
            raise TooSlow


def flat(found: Any) -> list[Any]:
    """A callback's answer as a list: None is nothing, one thing is one, lists are opened."""
    if found is None:
        return []
    if isinstance(found, Request | str) or is_item(found):
        return [found]
    if isinstance(found, Iterable):
        results: list[Any] = []
        for one in found:
            if isinstance(one, Request | dict):
                results.append(one)
            else:
                results += flat(one)
        return results
    return [found]


async def each(found: Any) -> AsyncIterator[Any]:
    """What `async` code of `start` gives: a generator's results, or a list when it is done."""
    if inspect.isasyncgen(found):
        async for one in found:
            yield one
    else:
        for one in flat(await found):
            yield one
