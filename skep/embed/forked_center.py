"""The first center of `skep run`: a fork of its process, made before a spider is loaded.

A fork has all loaded modules, which a new Python would import again: that took a tenth of the whole
run. It is created before the code of a spider is loaded, before any thread and any event loop.
Where that is not possible, `local_center` starts a new Python, as it does for a center that has to
be restarted.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn
from urllib.parse import urlsplit

from skep.center.data_folder import copied_from
from skep.runtime.child_processes import death_signal
from skep.runtime.files import UnreadableFile, read_line
from skep.runtime.process_exit import flush_output

CONNECT_SECONDS = 2.0


def fork_center(folder: Path, log: Path, start: Callable[[], int]) -> ForkedProcess | None:
    """Run `start` in a fork, which ends with its exit code; None if there is a center already, or
    if forking is not possible."""
    if not _can_fork() or _is_taken(folder):
        return None
    folder.mkdir(0o700, parents=True, exist_ok=True)
    flush_output()
    output, told = os.pipe()
    ask_for_the_end = death_signal(os.getpid())
    pid = os.fork()
    if not pid:
        os.close(output)
        _become(start, told, log, ask_for_the_end)
    os.close(told)
    return ForkedProcess(pid, output)


def _can_fork() -> bool:
    """Only on Linux, and without other threads, whose locks would stay locked."""
    return hasattr(os, "pidfd_open") and threading.active_count() == 1


def _is_taken(folder: Path) -> bool:
    """Whether anything listens at the address of the last center."""
    if not (folder / "center.url").exists() or copied_from(folder):
        return False
    try:
        address = urlsplit(read_line(folder / "center.url"))
        port = address.port or (443 if address.scheme == "https" else 80)
        socket.create_connection((address.hostname or "", port), CONNECT_SECONDS).close()
    except (OSError, ValueError, UnreadableFile):
        return False
    return True


def _become(
    start: Callable[[], int], told: int, log: Path, ask_for_the_end: Callable[[], None] | None
) -> NoReturn:
    """In the fork: only the modules of the parent process are used."""
    code = 1
    try:
        os.setsid()  # Ctrl-C is for the spider
        if ask_for_the_end is not None:
            ask_for_the_end()
        _lay(os.open(os.devnull, os.O_RDONLY), 0)
        _lay(told, 1)
        _lay(os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), 2)
        code = start()
        flush_output()
    except BaseException:  # noqa: BLE001 - it must not return into the code of the parent
        traceback.print_exc()
    finally:
        os._exit(code)


def _lay(file: int, number: int) -> None:
    os.dup2(file, number)
    os.close(file)


class ForkedProcess:
    """Like `asyncio.subprocess.Process`, for a fork. `attach` it to the loop first."""

    def __init__(self, pid: int, output: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.stdout: asyncio.StreamReader | None = None
        self._output = output
        self._ended: asyncio.Task[int] | None = None

    async def attach(self) -> None:
        """Connect it to the loop: its output and its end can then be awaited."""
        loop = asyncio.get_running_loop()
        reader = self.stdout = asyncio.StreamReader()
        pipe = os.fdopen(self._output, "rb", 0)
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
        self._ended = loop.create_task(self._end())

    async def wait(self) -> int:
        """Its exit code, when it has ended."""
        assert self._ended is not None  # noqa: S101 - attached by its owner
        return await asyncio.shield(self._ended)

    def terminate(self) -> None:
        os.kill(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def drop(self) -> None:
        """Kill it without an event loop, when it is not needed."""
        self.kill()
        os.waitpid(self.pid, 0)
        os.close(self._output)

    async def _end(self) -> int:
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        watched = os.pidfd_open(self.pid)
        loop.add_reader(watched, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(watched)
            os.close(watched)
        _, status = os.waitpid(self.pid, 0)  # noqa: ASYNC222 - it has ended
        self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


def clear_traces(paths: Sequence[Path]) -> None:
    """Remove those of these paths that are empty: an unused center created nothing else."""
    for path in paths:
        try:
            if path.is_dir():
                path.rmdir()
            elif path.exists() and not path.stat().st_size:
                path.unlink()
        except OSError:  # it is not empty
            continue
