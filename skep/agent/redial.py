"""Dials the agent's line again, so that sites see another address (A6). Runs on its event loop.

The command is the operator's, from the agent's settings, started without a shell; a run can
only ask for it. Downloads that use the line may end first, for a bounded time; heartbeats go
on, so that no lease is lost. It never dials twice at the same time, nor too often.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Callable
from typing import Protocol

from skep.runtime.clock import Clock
from skep.settings import AgentSettings

log = logging.getLogger(__name__)

STEP = 0.02


class RedialTargets(Protocol):
    """What is needed of the agent's downloaders."""

    @property
    def open_connections(self) -> int:
        """Downloads that use the line now."""

    def hold(self) -> None:
        """Start nothing."""

    def resume(self, trouble: str) -> None:
        """The line is there again; or it is not, and `trouble` says why."""


class Redialer:
    """`ask` it; whoever asks while it dials is served by the same call."""

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
        #: Calls that worked, ever.
        self.count = 0

    @property
    def able(self) -> bool:
        """Whether the operator has said how."""
        return bool(self._settings.redial)

    def ask(self) -> None:
        """Dial soon; returns at once."""
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._redial())

    async def close(self) -> None:
        """The agent ends: a command that is under way is ended too."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _redial(self) -> None:
        await self._clock.sleep(max(self._next - self._clock.monotonic(), 0.0))
        trouble = "the redial was broken off"
        self._lines.hold()
        try:
            await self._drained()
            trouble = await self._dial()
        finally:
            self._next = self._clock.monotonic() + self._settings.redial_every
            self._lines.resume(trouble)
            self._resumed()

    async def _drained(self) -> None:
        """Until nothing runs, or it has been waited for long enough."""
        deadline = self._clock.monotonic() + self._settings.redial_drain
        while self._lines.open_connections and self._clock.monotonic() < deadline:
            await self._clock.sleep(STEP)
        if left := self._lines.open_connections:
            log.warning("redial: %d downloads are cut off", left)

    async def _dial(self) -> str:
        """What went wrong; "" = nothing."""
        # No pipes: a command that leaves a daemon behind, as pppd is one, never closes them.
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
            return self._failed(f"ended with {code}")
        self.count += 1
        log.info("the line was dialled again")
        return ""

    @staticmethod
    def _failed(how: str) -> str:
        trouble = f"the redial command {how}"
        log.error("%s", trouble)
        return trouble


async def _end(process: Process) -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
