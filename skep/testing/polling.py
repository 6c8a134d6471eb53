"""Waits in a test for conditions without an event: another process, a log line, a row.

`until` polls, and fails with the condition, the time and the last value. It replaces loops with a
sleep; it is never a fixed pause. `until_sync` is for tests without an event loop.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn, TypedDict, TypeVar, Unpack, overload

T = TypeVar("T")
#: Long enough for a busy machine; a test of a time limit passes its own.
SECONDS = 30.0
STEP = 0.02
LONGEST_VALUE = 1000


class NotInTime(AssertionError):
    """The condition did not become true in time."""


class Limits(TypedDict, total=False):
    """Named arguments of `until`."""

    seconds: float
    what: str
    step: float
    despite: tuple[type[Exception], ...]


@overload
async def until(
    look: Callable[[], Awaitable[T]],
    ready: Callable[[T], object] = ...,
    **limits: Unpack[Limits],
) -> T: ...


@overload
async def until(
    look: Callable[[], T], ready: Callable[[T], object] = ..., **limits: Unpack[Limits]
) -> T: ...


async def until(
    look: Callable[[], Any],
    ready: Callable[[Any], object] = bool,
    *,
    seconds: float = SECONDS,
    what: str = "",
    step: float = STEP,
    despite: tuple[type[Exception], ...] = (),
) -> Any:
    """The result of `look`, as soon as `ready` accepts it; without `ready`, as soon as it is true.
    `look` may be a coroutine function; errors listed in `despite` do not end the wait. Raises
    NotInTime."""
    found: Any = None
    try:
        async with asyncio.timeout(seconds) as limit:
            while True:
                try:
                    found = look()
                    if inspect.isawaitable(found):
                        found = await found
                    if ready(found):
                        return found
                except despite as error:
                    found = error
                await asyncio.sleep(step)
    except TimeoutError:
        if not limit.expired():
            raise
        _fail(what or _words(look, ready), seconds, found)


def until_sync(
    look: Callable[[], T],
    ready: Callable[[T], object] = bool,
    *,
    seconds: float = SECONDS,
    what: str = "",
    step: float = STEP,
) -> T:
    """As `until`, in a separate thread or in a test without an event loop."""
    deadline = time.monotonic() + seconds
    while not ready(found := look()):
        if time.monotonic() >= deadline:
            _fail(what or _words(look, ready), seconds, found)
        time.sleep(step)
    return found


def _fail(what: str, seconds: float, last: object) -> NoReturn:
    value = f"an unfinished call ({last})" if inspect.isawaitable(last) else repr(last)
    if len(value) > LONGEST_VALUE:
        value = value[:LONGEST_VALUE] + "..."
    raise NotInTime(f"{what}: not within {seconds:g} s; the last value was {value}")


def _words(look: Callable[..., object], ready: Callable[..., object]) -> str:
    """The source of the condition in the test."""
    shown = look if ready is bool else ready
    try:
        lines = inspect.getsource(shown).split("\n")
    except (OSError, TypeError):
        return getattr(shown, "__qualname__", repr(shown))
    return " ".join(line.strip() for line in lines[:3]).strip()
