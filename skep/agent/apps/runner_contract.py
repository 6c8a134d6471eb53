"""What every way to run an application looks like to the agent: a process or a container.

A part of the agent; whoever holds a `Running` sees to its end.
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

#: Added to a signal's number where a program's exit code has to tell of it.
SIGNALLED = 128


class CannotRun(Exception):
    """It never will, as it is: the text says why."""


class NotNow(Exception):
    """It may work later, without anybody changing anything: the text says why."""


@dataclass(frozen=True, slots=True)
class ProcessExit:
    """How a program ended."""

    code: int

    @property
    def words(self) -> str:
        """For people."""
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
    #: A folder of the instance's own, for what belongs to this start.
    folder: Path
    #: Where its package was unpacked; None for an image.
    package: Path | None = None
    #: Folders with programs, before the system's.
    paths: tuple[Path, ...] = ()

    @property
    def variables(self) -> dict[str, str]:
        """What an application hears from its job, and about itself."""
        return {
            **self.spec.environment,
            "SKEP_RUN": self.run,
            "SKEP_INSTANCE": str(self.no),
            "SKEP_AGENT": self.agent,
        }


def lower_of(asked: int, allowed: int) -> int:
    """What a job gets of what its agent allows; 0 = any."""
    return min(asked, allowed) if asked and allowed else asked or allowed


class Running(Protocol):
    """A program that was started."""

    #: Its output, both streams; the one who reads closes it.
    output: int
    #: It has ended.
    over: bool

    async def wait(self) -> ProcessExit:
        """Return when it has ended, with all that it had started."""

    async def terminate(self) -> None:
        """Ask it to end."""

    async def kill(self) -> None:
        """End it."""

    async def pause(self) -> str:
        """Let it stand still; returns why it cannot, or nothing."""

    async def resume(self) -> str:
        """Let it go on; returns why it cannot, or nothing."""


async def ended(process: subprocess.Popen[bytes]) -> ProcessExit:
    """Return when a child of ours has ended."""
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
