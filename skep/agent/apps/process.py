"""Runs applications as processes: in bubblewrap where it works, with kernel limits.

Runs on the agent's event loop. Nothing of the agent's environment reaches an application, and
nothing of an application's environment reaches the programs that start it. No process of an
application outlives it, and none outlives the agent.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from skep.agent.apps.orphan_processes import end_marked, marks
from skep.agent.apps.runner_contract import CannotRun, NotNow, ProcessExit, Start, ended, lower_of
from skep.downloaders.code.child_start import descendants
from skep.downloaders.code.children import FIRST_UID, UIDS
from skep.downloaders.code.isolation import ENVIRONMENT, SCRATCH, Isolation, box_arguments
from skep.downloaders.code.seccomp import filter_file
from skep.model.jobs.app import AppSpec
from skep.settings import AgentSettings

LAUNCHER = Path(__file__).parent / "inside" / "launch.py"
#: Bytes of the in-memory home folder of an application.
HOME_BYTES = 256 * 2**20
START_SECONDS = 20.0
STOP_ROUNDS = 20
#: Added processes: bubblewrap and its first process count too, where they have the same user.
EXTRA_PROCESSES = 2


class Processes:
    """Starts applications with the isolation that this machine supports."""

    def __init__(self, isolation: Isolation, settings: AgentSettings) -> None:
        self._isolation = isolation
        self._settings = settings

    async def start(self, start: Start) -> Program:
        """Raises CannotRun and NotNow."""
        spec = start.spec
        if spec.network and not self._settings.code_network:
            raise CannotRun("it needs the network, which agent.code_network forbids here")
        # A different user for each: two applications with one user could kill each other.
        uid = FIRST_UID + secrets.randbelow(UIDS) if self._isolation.own_user else 0
        home = None if self._isolation.boxed else await asyncio.to_thread(_home, uid)
        try:
            order = self._order(start, uid, SCRATCH if home is None else str(home))
            # On the thread of the loop: a sandbox ends with the thread that created it.
            program = self._spawn(start, order, home)
        except BaseException:
            await asyncio.to_thread(_remove, home)
            raise
        try:
            await asyncio.to_thread(program.hear)
        except BaseException:
            await asyncio.shield(program.kill())
            await asyncio.shield(program.wait())
            os.close(program.output)
            raise
        return program

    def _order(self, start: Start, uid: int, home: str) -> dict[str, Any]:
        spec, limits = start.spec, start.spec.limits
        folder = start.package or start.folder
        # The kernel counts by user: the agent's own user already has many processes.
        countable = self._isolation.boxed or self._isolation.own_user
        processes = lower_of(limits.processes, self._settings.app_processes) if countable else 0
        return {
            "program": find(spec, folder, start.paths),
            "command": list(spec.command),
            "folder": str(folder),
            "environment": environment(start, home),
            "uid": uid,
            "memory": lower_of(limits.memory, self._settings.app_memory) * 2**20,
            "processes": processes + (0 if uid else EXTRA_PROCESSES) if processes else 0,
            "files": limits.files,
            "cpus": limits.cpus,
        }

    def _spawn(self, start: Start, order: dict[str, Any], home: Path | None) -> Program:
        ask = os.memfd_create("skep")
        os.write(ask, json.dumps(order).encode())
        os.lseek(ask, 0, os.SEEK_SET)
        told, tell = os.pipe()
        output, write = os.pipe()
        info, info_write = os.pipe()
        seccomp = filter_file() if self._isolation.boxed else None
        extra = () if seccomp is None else (seccomp,)
        try:
            process = subprocess.Popen(  # noqa: S603 - no shell
                self._command(start, ask, tell, info_write, seccomp),
                env=ENVIRONMENT,
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=write,
                stderr=write,
                pass_fds=(ask, tell, info_write, *extra),
                start_new_session=True,
            )
        except OSError as error:
            for fd in (told, output, info):
                os.close(fd)
            raise NotNow(f"cannot start a process: {error}") from error
        finally:
            for fd in (ask, tell, write, info_write, *extra):
                os.close(fd)
        boxed = self._isolation.boxed
        return Program(process, output, told, info, boxed, marks(start), home)

    def _command(
        self, start: Start, ask: int, tell: int, info: int, seccomp: int | None
    ) -> list[str]:
        launch = [sys.executable, "-I", "-S", str(LAUNCHER), str(ask), str(tell)]
        if not self._isolation.boxed:
            return launch
        folder = start.package or start.folder
        shown = [str(LAUNCHER), str(folder), *(str(path.parent) for path in start.paths)]
        pairs = [(path, path) for path in shown]
        if start.spec.network:
            pairs.append((os.path.realpath("/etc/resolv.conf"), "/etc/resolv.conf"))
        box = box_arguments(
            HOME_BYTES, root=self._isolation.own_user, network=start.spec.network, also=pairs
        )
        filtered = () if seccomp is None else ("--seccomp", str(seccomp))
        return [self._isolation.bwrap, *box, "--info-fd", str(info), *filtered, *launch]


@dataclass(slots=True)
class Program:
    """A started process, sandboxed or not."""

    process: subprocess.Popen[bytes]
    output: int
    _told: int
    _info: int
    _boxed: bool
    _mark: tuple[bytes, ...]
    #: Its own folder, where there is no sandbox.
    _home: Path | None
    over: bool = False
    #: The first process in the sandbox, whose end is the end of all; the process group of the
    #: application has its number.
    _inner: int = 0
    _inner_fd: int = -1
    _ended: asyncio.Future[ProcessExit] | None = None

    def hear(self) -> None:
        """Wait until the application runs. Raises CannotRun. Blocks; called once."""
        try:
            if self._boxed:
                self._hold(_inner_of(_read_all(self._info)))
            if words := _read_all(self._told):
                raise CannotRun(words.decode(errors="replace"))
        finally:
            os.close(self._info)
            os.close(self._told)

    def _hold(self, inner: int) -> None:
        with suppress(ProcessLookupError):  # it has ended already
            self._inner_fd = os.pidfd_open(inner)
            self._inner = inner

    async def wait(self) -> ProcessExit:
        if self._ended is None:
            self._ended = asyncio.ensure_future(self._wait())
        return await asyncio.shield(self._ended)

    async def _wait(self) -> ProcessExit:
        ending = await ended(self.process)
        await self.kill()
        self.over = True
        if self._inner_fd >= 0:
            await asyncio.to_thread(_wait_for, self._inner_fd)
            os.close(self._inner_fd)
        await asyncio.to_thread(_remove, self._home)
        return ending

    async def terminate(self) -> None:
        self._signal(signal.SIGTERM)
        await self.resume()  # a paused process would not handle the signal

    async def kill(self) -> None:
        if self.over:  # its process ids may have been reused
            return
        if self._inner_fd >= 0:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._inner_fd, signal.SIGKILL)
        elif not self._boxed:
            self._signal(signal.SIGKILL)
            await asyncio.to_thread(end_marked, self._mark)
        with suppress(ProcessLookupError):
            self.process.kill()

    async def pause(self) -> str:
        """Repeat until no process of it runs: it may have started others meanwhile."""
        self._signal(signal.SIGSTOP)
        stopped: set[int] = set()
        for _ in range(STOP_ROUNDS):
            found = set(await asyncio.to_thread(descendants, self._root)) - stopped
            if not found:
                return ""
            _signal_each(found, signal.SIGSTOP)
            stopped |= found
        return "it starts processes faster than they can be stopped"

    async def resume(self) -> str:
        self._signal(signal.SIGCONT)
        _signal_each(set(await asyncio.to_thread(descendants, self._root)), signal.SIGCONT)
        return ""

    @property
    def _root(self) -> int:
        return self._inner or self.process.pid

    def _signal(self, number: signal.Signals) -> None:
        """Signal its process group. In a sandbox that is the group of the first process in it,
        which handles only SIGKILL and SIGSTOP."""
        if not self.over:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._root, number)


def find(spec: AppSpec, folder: Path, paths: tuple[Path, ...]) -> str:
    """The path of the program: in the package, in its environment, or in the system."""
    if not spec.command:
        raise CannotRun("the application has no command")
    name = spec.command[0]
    inside = Path(os.path.normpath(folder / name))
    if inside.is_relative_to(folder) and inside.is_file():
        return str(inside)
    own_python = str(Path(sys.executable).resolve().parent)
    search = os.pathsep.join([*map(str, paths), ENVIRONMENT["PATH"], own_python])
    found = shutil.which(name, path=search) if "/" not in name or name.startswith("/") else None
    if found is None:
        raise CannotRun(
            f"program {name[:200]!r} is neither in the package nor installed on this machine"
        )
    return found


def environment(start: Start, home: str) -> dict[str, str]:
    """The whole environment of an application; the variables of its job come last."""
    path = os.pathsep.join([*map(str, start.paths), ENVIRONMENT["PATH"]])
    return {
        **ENVIRONMENT,
        "PATH": path,
        "HOME": home,
        "TMPDIR": home,
        **start.variables,
    }


def _home(uid: int) -> Path:
    """Without a sandbox: a folder that is deleted with the process."""
    home = Path(tempfile.mkdtemp(prefix="skep-app-"))
    if uid:
        os.chown(home, uid, uid)
    return home


def _remove(home: Path | None) -> None:
    if home is not None:
        shutil.rmtree(home, ignore_errors=True)


def _read_all(fd: int) -> bytes:
    """Read to the end; raises NotNow when that takes too long."""
    data = b""
    poll = select.poll()
    poll.register(fd, select.POLLIN | select.POLLHUP)
    while poll.poll(START_SECONDS * 1000):
        piece = os.read(fd, 4096)
        if not piece:
            return data
        data += piece
    raise NotNow(f"it was not started within {START_SECONDS:.0f} s")


def _inner_of(info: bytes) -> int:
    """The id of the first process in the sandbox, from bubblewrap's output."""
    try:
        return int(json.loads(info)["child-pid"])
    except (ValueError, KeyError) as error:
        raise NotNow("bubblewrap did not start it; see the log of the instance") from error


def _wait_for(pidfd: int) -> None:
    """Wait until a killed process has ended."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    poll.poll(START_SECONDS * 1000)


def _signal_each(pids: set[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
