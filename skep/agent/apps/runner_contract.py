"""The contract of every way to run an application: as a process or as a container.

Part of the agent; the owner of a `Running` must wait for its end.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from skep.model.jobs.app import AppSpec

#: Added to a signal's number in an exit code.
SIGNALLED = 128


class CannotRun(Exception):
    """It can never run as it is: the text gives the reason."""


class NotNow(Exception):
    """It may work later without changes: the text gives the reason."""


@dataclass(frozen=True, slots=True)
class ProcessExit:
    """How a program ended."""

    code: int

    @property
    def words(self) -> str:
        """A readable text."""
        with suppress(ValueError):
            if self.code > SIGNALLED:
                return f"signal {signal.Signals(self.code - SIGNALLED).name}"
        return f"exit code {self.code}"


@dataclass(frozen=True, slots=True)
class Start:
    """Everything that is needed to start an instance."""

    spec: AppSpec
    run: str
    no: int
    token: int
    agent: str
    #: A private folder of the instance, for files of this start.
    folder: Path
    #: Folder of its unpacked package; None for an image.
    package: Path | None = None
    #: Folders with programs, before the system's.
    paths: tuple[Path, ...] = ()

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables of its job, and about itself."""
        return {
            **self.spec.environment,
            "SKEP_RUN": self.run,
            "SKEP_INSTANCE": str(self.no),
            "SKEP_AGENT": self.agent,
        }


def lower_of(asked: int, allowed: int) -> int:
    """The lower limit of job and agent; 0 = no limit."""
    return min(asked, allowed) if asked and allowed else asked or allowed


class Running(Protocol):
    """A started program."""

    #: Its output, both streams; the reader closes it.
    output: int
    #: It has ended.
    over: bool

    async def wait(self) -> ProcessExit:
        """Return when it and all its processes have ended."""

    async def terminate(self) -> None:
        """Send it SIGTERM."""

    async def kill(self) -> None:
        """Kill it."""

    async def pause(self) -> str:
        """Pause it; returns why it failed, or ""."""

    async def resume(self) -> str:
        """Resume it; returns why it failed, or ""."""


async def ended(process: subprocess.Popen[bytes]) -> ProcessExit:
    """Return when a child process has ended."""
    if process.poll() is None:
        loop = asyncio.get_running_loop()
        over = asyncio.Event()
        pidfd = os.pidfd_open(process.pid)
        loop.add_reader(pidfd, over.set)
        try:
            await over.wait()
        finally:
            loop.remove_reader(pidfd)
            os.close(pidfd)
    code = process.wait()
    return ProcessExit(code if code >= 0 else SIGNALLED - code)
