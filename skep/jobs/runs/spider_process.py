"""Runs a spider of a job as a child process of its center: `python -m skep.spiders`.

The code of spiders never runs inside a center. The child has a separate process group, only those
variables of the center's environment that Python needs, and a token that is valid for its run
only. Where bubblewrap works, it sees neither the center's data folder nor its processes. It
cannot outlive the center.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from skep.downloaders.code.seccomp import filter_file
from skep.errors import ConfigurationError
from skep.jobs.runs.spider_sandbox import SpiderSandbox, working_sandbox
from skep.runtime.child_processes import death_signal

log = logging.getLogger(__name__)

#: Variables that a child inherits; all others may contain secrets of the center.
INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "PYTHONPATH", "VIRTUAL_ENV")
#: Bytes of a log file above which it is truncated, and of the end that is stored with the run. The
#: feed of its lines (`logs/center/file_feed.py`) empties it earlier.
LOG_LIMIT = 80 * 2**20
TAIL = 4000


@dataclass(frozen=True, slots=True)
class SpiderCommand:
    """The task of a child."""

    run: str
    spider: str
    arguments: Mapping[str, str | int | float | bool]
    center: str
    token: str
    #: Megabytes; 0 = no limit.
    memory: int = 0

    def argv(self) -> list[str]:
        chosen = [part for pair in self.arguments.items() for part in ("-a", _pair(*pair))]
        place = ["--run", self.run, "--center", self.center, "--memory", str(self.memory)]
        return [sys.executable, "-m", "skep.spiders", self.spider, "--kept", *place, *chosen]


class SpiderProcess:
    """One child process."""

    def __init__(self, process: Process, log: Path, *, boxed: bool) -> None:
        self._process = process
        self._log = log
        self._boxed = boxed

    @property
    def pid(self) -> int:
        return self._process.pid

    async def ended_within(self, seconds: float) -> int | None:
        """Its exit code; None while it runs."""
        self._bound_log()
        try:
            async with asyncio.timeout(seconds):
                return await self._process.wait()
        except TimeoutError:
            return None

    def ask_to_end(self) -> None:
        """Ask it to end after its current block. In a sandbox the spider is the child's child."""
        with suppress(OSError, ValueError):
            boxed = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
            os.kill(int(boxed[0]) if self._boxed and boxed else self.pid, signal.SIGTERM)

    async def kill(self) -> None:
        """Kill it with all of its children; what it has reported is stored."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()

    def tail(self) -> str:
        """The last lines of its log."""
        with suppress(OSError), self._log.open("rb") as log:
            start = max(0, log.seek(0, os.SEEK_END) - TAIL)
            log.seek(start)
            last = log.read()
            # The rest of a line that was cut may be the rest of a secret: it is not shown.
            return (last.partition(b"\n")[2] if start else last).decode(errors="replace")
        return ""

    def _bound_log(self) -> None:
        with suppress(OSError):
            if self._log.stat().st_size > LOG_LIMIT:
                os.truncate(self._log, 0)


class Spawner:
    """Starts children. `folder` contains the spiders; `data` is the center's data folder, which
    gets their logs and which they must not see."""

    def __init__(
        self, folder: Path, data: Path, environment: Mapping[str, str], code: str = "boxed"
    ) -> None:
        """`code` is the setting jobs.code."""
        self._folder = folder
        self._data = data
        self._code = code
        self._logs = data / "runs"
        self._box: SpiderSandbox | None = None
        self._environment = {name: environment[name] for name in INHERITED if name in environment}

    def log_file(self, run: str) -> Path:
        """Where the output of a run's spider goes."""
        return self._logs / f"{run}.log"

    async def start(self, order: SpiderCommand) -> SpiderProcess:
        """Raises OSError when the machine cannot start another process, ConfigurationError when
        there is no sandbox and the settings require one."""
        self._logs.mkdir(parents=True, exist_ok=True)
        box = await self._checked_box()
        log = self.log_file(order.run)
        seccomp = filter_file(counted=True) if box.arguments else None
        try:
            with log.open("ab") as errors:
                process = await asyncio.create_subprocess_exec(
                    *box.command(order.argv(), seccomp),
                    cwd=self._folder,
                    env={**self._variables(box), "SKEP_TOKEN": order.token},
                    stdin=DEVNULL,
                    stdout=errors,
                    stderr=errors,
                    preexec_fn=death_signal(os.getpid(), no_new_privileges=True),
                    start_new_session=True,
                    pass_fds=() if seccomp is None else (seccomp,),
                )
        finally:
            if seccomp is not None:
                os.close(seccomp)
        return SpiderProcess(process, log, boxed=bool(box.arguments))

    async def _checked_box(self) -> SpiderSandbox:
        if self._box is None:
            self._box = await asyncio.to_thread(working_sandbox, self._data, self._folder)
            if self._box.why_not and self._code == "always":
                log.warning("spiders of jobs can read %s: %s", self._data, self._box.why_not)
        if self._box.why_not and self._code != "always":
            raise ConfigurationError(
                f"this center cannot run spiders of jobs: {self._box.why_not}; install bubblewrap, "
                "or set jobs.code to always to run them without a sandbox"
            )
        return self._box

    def _variables(self, box: SpiderSandbox) -> dict[str, str]:
        """In a sandbox the home folder and the folder for temporary files are private."""
        own = dict.fromkeys(("HOME", "TMPDIR"), "/tmp") if box.arguments else {}  # noqa: S108 - in the sandbox
        return {**self._environment, **own}


def _pair(name: str, value: str | float | bool) -> str:
    return f"{name}={str(value).lower() if isinstance(value, bool) else value}"
