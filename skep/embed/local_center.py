"""The center of a data folder for one command: the running one, or a child process.

A child is `skep up` in a separate process, so that the code of a spider and the code of a center
never share one: a fork from before the spider was loaded, or a new Python. It always ends with its
parent. A center that dies is restarted on the same port, and its callers continue.
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

from skep.center.data_folder import copied_from
from skep.embed.center_address import CenterAddress, find_token
from skep.embed.forked_center import ForkedProcess
from skep.errors import CenterUnreachable, ConfigurationError, SkepError
from skep.runtime.backoff import Backoff
from skep.runtime.child_processes import death_signal
from skep.runtime.clock import Clock
from skep.runtime.files import UnreadableFile, read_line

LOOK_EVERY = 1.0
LOOK_SECONDS = 5.0
CONNECT_SECONDS = 2.0
START_SECONDS = 60.0
END_SECONDS = 20.0
AGAIN = Backoff(first=0.2, cap=5.0)
LOG = "center.log"
#: Output of `skep up` when its agent is ready.
JOINED = b"agent "
#: See `embedded.py`, which is too large to import here.
STARTED_BY = "STARTED_BY_SKEP"

Child = Process | ForkedProcess


def up_words(reach: CenterAddress, folder: Path, port: int) -> list[str]:
    """The command line of a child, after the name of the program."""
    config = [] if reach.config is None else ["--config", str(reach.config)]
    return ["up", "--data", str(folder), "--port", str(port), *config]


def started_by(pid: int) -> str:
    return f"center of skep run, process {pid}"


class DataFolderCenter:
    """Call `start`, use `url`, call `stop`: a center that ran before keeps running."""

    def __init__(
        self,
        reach: CenterAddress,
        folder: Path,
        clock: Clock,
        rng: Random,
        note: Callable[[str], None],
    ) -> None:
        self._reach = reach
        self._folder = folder
        self._clock = clock
        self._rng = rng
        self._note = note
        self._child: Child | None = None
        self._meanwhile: Callable[[], None] | None = None
        self.url = ""

    @property
    def pid(self) -> int:
        """The id of the child process; 0 when another process runs the center."""
        return self._child.pid if self._child else 0

    def token(self) -> str:
        """The admin token of the center, or the given one."""
        return find_token(self._reach.token_file, self._folder / "admin.token")

    async def start(
        self, begun: ForkedProcess | None = None, meanwhile: Callable[[], None] | None = None
    ) -> None:
        """Raises ConfigurationError with its output when it cannot start. `begun` is a child that
        was started before. A child takes a while to start: `meanwhile` is called once, after the
        child was started."""
        self._meanwhile = meanwhile
        self._folder.mkdir(0o700, parents=True, exist_ok=True)
        if begun is None or not await self._adopted(begun):
            await self._ensure(0)

    async def stop(self) -> None:
        """Stop the child gracefully: active downloads may end, the rest is returned."""
        if self._child is None or self._child.returncode is not None:
            return
        self._child.terminate()
        try:
            await asyncio.wait_for(self._child.wait(), END_SECONDS)
        except TimeoutError:
            self._child.kill()
            await self._child.wait()

    async def _ensure(self, port: int) -> None:
        """Return when a center answers, if needed a new child on that port."""
        deadline = self._clock.monotonic() + START_SECONDS
        attempt = 0
        while True:
            if await self._answers() or await self._spawned(port):
                return
            attempt += 1
            if self._clock.monotonic() > deadline:
                raise CenterUnreachable(
                    f"the center in {self._folder} does not answer and does not end; stop it, or "
                    "choose another folder with --data"
                )
            await self._clock.sleep(AGAIN.delay(attempt, self._rng))

    async def _answers(self) -> bool:
        """Whether the center at the stored address answers, and belongs to this folder."""
        if copied_from(self._folder):
            return False
        try:
            url = read_line(self._folder / "center.url")
            token = self.token()
        except (OSError, UnreadableFile, SkepError):
            return False
        if not await _listens(url):
            return False
        # Imported here, because there is time for it while a child starts.
        from skep.wire.api.runs import RunPage
        from skep.wire.client import CenterClient

        async with CenterClient([url], token, self._clock, self._rng) as client:
            try:
                await client.api_within(LOOK_SECONDS).runs.list(RunPage(1))
            except SkepError:
                return False
        self.url = url
        return True

    async def _adopted(self, begun: ForkedProcess) -> bool:
        """Take over the started child; False when another center has the folder."""
        await begun.attach()
        return await self._taken(begun, 0)

    async def _spawned(self, port: int) -> bool:
        """Start a child; False when another center has the folder."""
        log = self._folder / LOG
        written = log.stat().st_size if log.exists() else 0
        with log.open("ab") as errors:
            child = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "skep", *up_words(self._reach, self._folder, port)),
                stdin=DEVNULL,
                stdout=PIPE,
                stderr=errors,
                env={**os.environ, STARTED_BY: started_by(os.getpid())},
                preexec_fn=_child_begins(os.getpid()),
                # Ctrl-C is for the spider: it pauses first, then ends its center.
                start_new_session=True,
            )
        return await self._taken(child, written)

    async def _taken(self, child: Child, written: int) -> bool:
        """Wait until the child is ready. `written`: bytes of its log before the start."""
        if self._meanwhile is not None:
            self._meanwhile()
            self._meanwhile = None
        if await _joined(child):
            self._child, self.url = child, read_line(self._folder / "center.url")
            return True
        said = (self._folder / LOG).read_bytes()[written:].decode(errors="replace").strip()
        if "another center works in" in said:
            return False
        raise ConfigurationError(f"the center did not start: {said[-500:] or 'no output'}")

    async def keep(self) -> None:
        """Restart it when it is gone, at the same address. Cancel this task before `stop`."""
        while True:
            if self._child is not None:
                code = await self._child.wait()
                self._child = None
                self._note(f"the center ended ({code}); restarting it")
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
                self._note(f"cannot start the center: {error}")
                await self._clock.sleep(LOOK_EVERY)


async def _listens(url: str) -> bool:
    """Whether anything accepts connections there: usually the last center has ended, and no HTTP
    client is needed to detect that."""
    try:
        address = urlsplit(url)
        port = address.port or (443 if address.scheme == "https" else 80)
        async with asyncio.timeout(CONNECT_SECONDS):
            _, line = await asyncio.open_connection(address.hostname, port)
    except (OSError, TimeoutError, ValueError):
        return False
    line.close()
    return True


def _child_begins(parent: int) -> Callable[[], None]:
    """Called in the child before it becomes a center: it ends with its parent, and it drops the
    memory limit of the spider."""
    die_with_parent = death_signal(parent)
    _, most = resource.getrlimit(resource.RLIMIT_AS)

    def begin() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        if die_with_parent is not None:
            die_with_parent()

    return begin


async def _joined(child: Child) -> bool:
    """Wait until its agent has joined; False when it ended before."""
    if child.stdout is None:
        return False
    async for line in child.stdout:
        if line.startswith(JOINED):
            return True
    await child.wait()
    return False
