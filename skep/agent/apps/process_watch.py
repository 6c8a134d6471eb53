"""Watches one process of an instance from its start to its end. Runs on the event loop.

Stops it, pauses it and lets it go on, as is wished at the time, and ends it when its time is
over. Time in which it is paused does not count. Why it ended is for others to judge.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from skep.agent.apps.runner_contract import Running
from skep.model.jobs.app import AppSpec, InstanceState
from skep.runtime.clock import Clock
from skep.runtime.signals import WakeUp

log = logging.getLogger(__name__)


class Cause(Enum):
    """Why a process of an instance ended."""

    ITSELF = "by itself"
    WISH = "told to"
    TIME = "over its time"


@dataclass(frozen=True, slots=True)
class DesiredState:
    """What is wished of a process, at any time; `news` rings when that may have changed."""

    news: WakeUp
    wanted: Callable[[], bool]
    pause: Callable[[], bool]
    #: It goes on, or stands still; or, with None, why it does not.
    told: Callable[[InstanceState | None, str], Awaitable[None]]


class ProcessWatch:
    """`run` it until the process has ended."""

    def __init__(self, running: Running, spec: AppSpec, wishes: DesiredState, clock: Clock) -> None:
        self._running = running
        self._spec = spec
        self._wishes = wishes
        self._clock = clock
        self._paused = False
        self._left = spec.limits.time or None

    async def run(self) -> Cause:
        """Ends it when it shall not run any more."""
        ended = asyncio.ensure_future(self._running.wait())
        while not ended.done():
            if not self._wishes.wanted():
                await self._stop()
                return Cause.WISH
            await self._pause_or_go_on()
            if await self._wait(ended):
                await self._stop()
                return Cause.TIME
        return Cause.ITSELF

    async def _wait(self, ended: asyncio.Future[Any]) -> bool:
        """For its end, or for news; True when its time is over."""
        began = self._clock.monotonic()
        await either(ended, self._wishes.news.wait(None if self._paused else self._left))
        if self._left is None or self._paused:
            return False
        self._left -= self._clock.monotonic() - began
        return self._left <= 0 and not ended.done()

    async def _pause_or_go_on(self) -> None:
        shall = self._wishes.pause()
        if shall == self._paused:
            return
        trouble = await (self._running.pause() if shall else self._running.resume())
        if trouble:
            words = f"cannot be {'paused' if shall else 'resumed'}: {trouble}"
            await self._wishes.told(None, words)
            return
        self._paused = shall
        await self._wishes.told(InstanceState.PAUSED if shall else InstanceState.RUNNING, "")

    async def _stop(self) -> None:
        """Ask, wait, and end it by force."""
        await self._running.terminate()
        ended = asyncio.ensure_future(self._running.wait())
        await either(ended, self._clock.sleep(self._spec.stop_seconds))
        if not ended.done():
            await self._running.kill()
        await ended


async def either(ended: asyncio.Future[Any], other: Awaitable[object]) -> None:
    """Return when one of the two is over; the other one is given up if it is the second."""
    waiting = asyncio.ensure_future(other)
    try:
        await asyncio.wait((ended, waiting), return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()


async def let_go(task: asyncio.Future[Any]) -> None:
    """Whatever becomes of it: it is over when this returns."""
    task.cancel()
    await asyncio.wait((task,))
    if not task.cancelled() and (error := task.exception()) is not None:
        log.debug("let go: %r", error)


async def end_by_force(running: Running) -> None:
    """Nothing when it has ended already."""
    if not running.over:
        await running.kill()
        await running.wait()
