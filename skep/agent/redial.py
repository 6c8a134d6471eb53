"""Reconnects the agent's line, so that hosts see another address. Runs on its event loop.

The command is the operator's, from the agent's settings, started without a shell; a run can only
request it. Downloads that use the line may finish first, for a bounded time; heartbeats continue,
so that no lease is lost. It never redials twice at the same time, nor too often.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Callable, Iterable
from typing import Protocol

from skep.downloaders.ports import RedialKind
from skep.runtime.clock import Clock
from skep.settings import AgentSettings

log = logging.getLogger(__name__)

STEP = 0.02


class RedialTargets(Protocol):
    """The contract with the agent's downloaders."""

    @property
    def open_connections(self) -> int:
        """Number of downloads that use the line now."""

    def hold(self) -> None:
        """Stop starting downloads."""

    def resume(self, trouble: str) -> None:
        """The line is connected again; or not, and `trouble` gives the reason."""


class Redialer:
    """`ask` for a redial; requests during a redial are covered by it."""

    def __init__(
        self,
        settings: AgentSettings,
        lines: RedialTargets,
        clock: Clock,
        resumed: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._lines = lines
        self._clock = clock
        self._resumed = resumed
        self._task: asyncio.Task[None] | None = None
        self._next = 0.0
        #: Number of successful redials.
        self.count = 0

    @property
    def able(self) -> bool:
        """Whether the operator has set a command."""
        return bool(self._settings.redial)

    def ask(self) -> None:
        """Redial soon; returns at once."""
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._redial())

    async def close(self) -> None:
        """The agent ends: a running command is ended too."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _redial(self) -> None:
        await self._clock.sleep(max(self._next - self._clock.monotonic(), 0.0))
        trouble = "the redial was aborted"
        self._lines.hold()
        try:
            await self._drained()
            trouble = await self._dial()
        finally:
            self._next = self._clock.monotonic() + self._settings.redial_every
            self._lines.resume(trouble)
            self._resumed()

    async def _drained(self) -> None:
        """Wait until no download runs, or the time is over."""
        deadline = self._clock.monotonic() + self._settings.redial_drain
        while self._lines.open_connections and self._clock.monotonic() < deadline:
            await self._clock.sleep(STEP)
        if left := self._lines.open_connections:
            log.warning("redial: aborting %d downloads", left)

    async def _dial(self) -> str:
        """The problem; "" = none."""
        # No pipes: a command that leaves a daemon behind, such as pppd, never closes them.
        try:
            process = await asyncio.create_subprocess_exec(
                *self._settings.redial,
                stdin=DEVNULL,
                stdout=DEVNULL,
                stderr=DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            return self._failed(f"could not be started: {error.strerror}")
        limit = self._settings.redial_seconds
        try:
            async with asyncio.timeout(limit):
                code = await process.wait()
        except TimeoutError:
            return self._failed(f"took more than {limit:g} s")
        finally:
            await _end(process)
        if code:
            return self._failed(f"ended with exit code {code}")
        self.count += 1
        log.info("the line was redialled")
        return ""

    @staticmethod
    def _failed(how: str) -> str:
        trouble = f"the redial command {how}"
        log.error("%s", trouble)
        return trouble


def line_figures(kinds: Iterable[RedialKind]) -> dict[str, int]:
    """What happened to the lines of all downloaders, for the agent's health figures."""
    counts = [kind.tally.counts for kind in kinds]
    return {
        "switches": sum(count.switches for count in counts),
        "rested": sum(count.rested for count in counts),
        "blocked": sum(count.blocked for count in counts),
    }


async def wait_until(clock: Clock, seconds: float, over: Callable[[], bool]) -> bool:
    """Whether it was over within that time."""
    deadline = clock.monotonic() + seconds
    while not over() and clock.monotonic() < deadline:
        await clock.sleep(STEP)
    return over()


async def _end(process: Process) -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
