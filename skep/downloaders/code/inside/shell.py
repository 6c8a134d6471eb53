"""Runs one shell script per request, inside the child, and cleans up after it.

The URI is an argument and a variable of the script, never a part of its text.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess  # the whole point of this file
import time
from pathlib import Path

from skep.downloaders.code.inside.talk import CHUNK, Ask, Body, Load, TooMuch

#: Rounds of killing leftover processes before giving up.
KILL_ROUNDS = 200
FOUND_STATUS = 200


class Shell:
    """Runs a script once per request and removes its files and processes."""

    def __init__(self, load: Load) -> None:
        self._script = Path("script.sh").absolute()
        self._script.write_text(load.source)
        self._limit = load.output
        self._namespaced = load.namespaced
        self._folder = Path("request").absolute()

    def work(self, ask: Ask) -> Body:
        self._folder.mkdir()
        try:
            return self._run(ask)
        finally:
            self._end_leftovers()
            shutil.rmtree(self._folder, ignore_errors=True)

    def _run(self, ask: Ask) -> Body:
        given = self._folder.with_name("body")
        given.write_bytes(ask.body)
        with given.open("rb") as body, subprocess.Popen(  # noqa: S603 - see above
            ["/bin/sh", str(self._script), ask.uri],
            stdin=body,
            stdout=subprocess.PIPE,
            cwd=self._folder,
            env=self._environment(ask),
            start_new_session=True,
        ) as child:  # fmt: skip
            output = self._read(child)
            code = child.wait()
        if code:
            raise RuntimeError(f"the script ended with {ending_of(code)}")
        return FOUND_STATUS, [("Content-Type", "application/octet-stream")], output

    def _environment(self, ask: Ask) -> dict[str, str]:
        mine = {
            "SKEP_URI": ask.uri,
            "SKEP_METHOD": ask.method,
            "SKEP_HEADERS": json.dumps(ask.headers),
            "SKEP_META": json.dumps(ask.meta),
        }
        return {**os.environ, **mine}

    def _read(self, child: subprocess.Popen[bytes]) -> bytes:
        """Its output until the script has ended; other holders of the pipe are killed."""
        assert child.stdout is not None  # noqa: S101 - for the type checker
        pipe, ended = child.stdout.fileno(), os.pidfd_open(child.pid)
        os.set_blocking(pipe, False)
        poll = select.poll()
        poll.register(pipe, select.POLLIN)
        poll.register(ended, select.POLLIN)
        output = bytearray()
        open_fds = {pipe, ended}
        try:
            while ended in open_fds:
                for fd, _ in poll.poll():
                    if fd == ended or not self._take(pipe, output):
                        poll.unregister(fd)
                        open_fds.discard(fd)
            while self._take(pipe, output):
                pass
        except TooMuch:
            child.kill()
            raise
        finally:
            os.close(ended)
        return bytes(output)

    def _take(self, pipe: int, output: bytearray) -> bool:
        try:
            piece = os.read(pipe, CHUNK)
        except BlockingIOError:
            return False
        output += piece
        if len(output) > self._limit:
            raise TooMuch(f"the script wrote more than {self._limit} bytes")
        return bool(piece)

    def _end_leftovers(self) -> None:
        """Kill processes that the script left in the background or in other sessions."""
        for _ in range(KILL_ROUNDS):
            try:
                if self._namespaced:
                    os.kill(-1, signal.SIGKILL)
                elif not _kill_children():
                    return
            except ProcessLookupError:
                return
            time.sleep(0.001)


def _kill_children() -> bool:
    """Kill our children. As the subreaper we also have all orphans."""
    children = Path("/proc/self/task", str(os.getpid()), "children").read_text().split()
    for pid in map(int, children):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return bool(children)


def ending_of(code: int) -> str:
    if code > 0:
        return f"exit code {code}"
    with contextlib.suppress(ValueError):
        return f"signal {signal.Signals(-code).name}"
    return f"signal {-code}"
