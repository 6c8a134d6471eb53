"""The center of a data folder for one command: the one that runs there, or a child.

A child is `skep up` in a process of its own, so that the code of a spider and the code of a
center never share one. It ends with its parent, however that ends. A center that dies in
the middle comes back on the same port, and its callers go on.
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable
from pathlib import Path
from random import Random
from urllib.parse import urlsplit

from skep.center.folder import copied_from
from skep.cli.reach import Reach
from skep.errors import CenterUnreachable, ConfigurationError, SkepError
from skep.runtime.backoff import Backoff
from skep.runtime.clock import Clock
from skep.runtime.files import UnreadableFile, read_line
from skep.runtime.orphans import death_signal
from skep.wire.client import CenterClient

LOOK_EVERY = 1.0
LOOK_SECONDS = 5.0
START_SECONDS = 60.0
END_SECONDS = 20.0
AGAIN = Backoff(first=0.2, cap=5.0)
LOG = "center.log"
#: What `skep up` says when its agent is ready for work.
JOINED = b"agent "
#: See `skep.embed`, which is too large to import here.
STARTED_BY = "STARTED_BY_SKEP"


class NearbyCenter:
    """`start` it, use its `url`, `stop` it: a center that was there before stays."""

    def __init__(
        self, reach: Reach, clock: Clock, rng: Random, note: Callable[[str], None]
    ) -> None:
        self._reach = reach
        self._folder = Path(reach.settings().data)
        self._clock = clock
        self._rng = rng
        self._note = note
        self._child: Process | None = None
        self._watch: asyncio.Task[None] | None = None
        self.url = ""

    @property
    def pid(self) -> int:
        """The child's; 0 when the center is somebody else's."""
        return self._child.pid if self._child else 0

    async def start(self) -> None:
        """Raises ConfigurationError when none could be started, with what it said."""
        await asyncio.to_thread(self._folder.mkdir, 0o700, True, True)
        await self._ensure(0)
        self._watch = asyncio.create_task(self._keep())

    async def stop(self) -> None:
        """End the child in order: what its agent downloads may end, the rest is given back."""
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
        if self._child is None or self._child.returncode is not None:
            return
        self._child.terminate()
        try:
            await asyncio.wait_for(self._child.wait(), END_SECONDS)
        except TimeoutError:
            self._child.kill()
            await self._child.wait()

    async def _ensure(self, port: int) -> None:
        """A center answers when this returns, if need be one of ours on that port."""
        deadline = self._clock.monotonic() + START_SECONDS
        attempt = 0
        while True:
            if await self._answers() or await self._spawned(port):
                return
            attempt += 1
            if self._clock.monotonic() > deadline:
                raise CenterUnreachable(
                    f"the center in {self._folder} neither answers nor ends; stop it, or choose "
                    "another folder with --data"
                )
            await self._clock.sleep(AGAIN.delay(attempt, self._rng))

    async def _answers(self) -> bool:
        """Whether the center that left its address here is there, and is this folder's."""
        if copied_from(self._folder):
            return False
        try:
            url = read_line(self._folder / "center.url")
            token = self._reach.token()
        except (OSError, UnreadableFile, SkepError):
            return False
        async with CenterClient([url], token, self._clock, self._rng) as client:
            try:
                await client.call("GET", "/api/v1/runs?limit=1", None, bytes, seconds=LOOK_SECONDS)
            except SkepError:
                return False
        self.url = url
        return True

    async def _spawned(self, port: int) -> bool:
        """Start a child; False when another center has the folder."""
        log = self._folder / LOG
        began = log.stat().st_size if log.exists() else 0
        place = ["--data", str(self._folder), "--port", str(port)]
        if self._reach.config is not None:
            place += ["--config", str(self._reach.config)]
        with log.open("ab") as errors:
            child = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "skep", "up", *place),
                stdin=DEVNULL,
                stdout=PIPE,
                stderr=errors,
                env={**os.environ, STARTED_BY: f"center of skep run, process {os.getpid()}"},
                preexec_fn=_child_begins(os.getpid()),
                # Ctrl-C is for the spider: it pauses first, and ends its center then.
                start_new_session=True,
            )
        if await _joined(child):
            self._child, self.url = child, read_line(self._folder / "center.url")
            return True
        said = log.read_bytes()[began:].decode(errors="replace").strip()
        if "another center works in" in said:
            return False
        raise ConfigurationError(f"the center did not start: {said[-500:] or 'it said nothing'}")

    async def _keep(self) -> None:
        """Start it again when it is gone, at the same address."""
        while True:
            if self._child is not None:
                code = await self._child.wait()
                self._child = None
                self._note(f"the center ended ({code}); starting it again")
            else:
                await self._clock.sleep(LOOK_EVERY)
                if await self._answers():
                    continue
                self._note(
                    f"the center at {self.url} is gone; starting one in {self._folder} for this "
                    "run, which ends with it"
                )
            try:
                await self._ensure(urlsplit(self.url).port or 0)
            except (SkepError, OSError) as error:
                self._note(f"the center could not be started: {error}")
                await self._clock.sleep(LOOK_EVERY)


def _child_begins(parent: int) -> Callable[[], None]:
    """Called in the child before it becomes a center: it ends with its parent, and the limit
    on the memory of a spider is not a center's."""
    die_with_parent = death_signal(parent)
    _, most = resource.getrlimit(resource.RLIMIT_AS)

    def begin() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        if die_with_parent is not None:
            die_with_parent()

    return begin


async def _joined(child: Process) -> bool:
    """Wait until its agent is there; False when it ended before."""
    if child.stdout is None:
        return False
    async for line in child.stdout:
        if line.startswith(JOINED):
            return True
    await child.wait()
    return False
