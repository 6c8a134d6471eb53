"""Watches one process of an instance from its start to its end. Runs on the event loop.

Stops, pauses and resumes it, as currently desired, and ends it when its time is over. Paused time
does not count. The caller decides what its end means.
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

    ITSELF = "exited"
    WISH = "stopped"
    TIME = "time limit"


@dataclass(frozen=True, slots=True)
class DesiredState:
    """The desired state of a process; `news` is notified when it may have changed."""

    news: WakeUp
    wanted: Callable[[], bool]
    pause: Callable[[], bool]
    #: Called when it runs or is paused; or, with None, why that failed.
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
        """Ends it when it is no longer desired."""
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
        """Wait for its end, or for news; True when its time is over."""
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
            words = f"cannot {'pause' if shall else 'resume'} it: {trouble}"
            await self._wishes.told(None, words)
            return
        self._paused = shall
        await self._wishes.told(InstanceState.PAUSED if shall else InstanceState.RUNNING, "")

    async def _stop(self) -> None:
        """Send SIGTERM, wait, then kill it."""
        await self._running.terminate()
        ended = asyncio.ensure_future(self._running.wait())
        await either(ended, self._clock.sleep(self._spec.stop_seconds))
        if not ended.done():
            await self._running.kill()
        await ended


async def either(ended: asyncio.Future[Any], other: Awaitable[object]) -> None:
    """Return when one of the two is done; `other` is cancelled if it is not."""
    waiting = asyncio.ensure_future(other)
    try:
        await asyncio.wait((ended, waiting), return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()


async def let_go(task: asyncio.Future[Any]) -> None:
    """Cancel a task; it has ended when this returns."""
    task.cancel()
    await asyncio.wait((task,))
    if not task.cancelled() and (error := task.exception()) is not None:
        log.debug("cancelled task raised: %r", error)


async def end_by_force(running: Running) -> None:
    """Kill it; does nothing when it has ended already."""
    if not running.over:
        await running.kill()
        await running.wait()
