"""A center as a benchmark uses it: a child process behind HTTP, and calls to it.

The client is the standard library's, so that the center is measured and not the client.
"""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bench.figures import Wrong
from bench.processes import PEERS, ROOT

START_SECONDS, STOP_SECONDS = 20.0, 15.0


class Refused(Wrong):
    """The center answered with an error; `status` is its status code."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(f"{status}: {detail[:500]}")
        self.status = status


@dataclass(frozen=True, slots=True)
class CenterDoor:
    """The address of a center, and a token for it."""

    url: str
    token: str
    #: The id of its process; 0 if it was not started here.
    pid: int = 0

    def call(self, method: str, path: str, body: Any = None, seconds: float = 30.0) -> Any:
        """One call on a new connection; raises Refused or OSError."""
        address = urlsplit(self.url)
        line = http.client.HTTPConnection(address.hostname or "", address.port, timeout=seconds)
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        try:
            line.request(method, path, data, headers)
            answer = line.getresponse()
            content = answer.read()
        finally:
            line.close()
        if answer.status >= 400:
            raise Refused(answer.status, content.decode(errors="replace"))
        return json.loads(content)

    def raw(self, path: str) -> bytes:
        """The bytes of a path."""
        address = urlsplit(self.url)
        line = http.client.HTTPConnection(address.hostname or "", address.port, timeout=30)
        try:
            line.request("GET", path, headers={"Authorization": f"Bearer {self.token}"})
            answer = line.getresponse()
            content = answer.read()
        finally:
            line.close()
        if answer.status >= 400:
            raise Refused(answer.status, content.decode(errors="replace"))
        return content


def clean_environment(**settings: str) -> dict[str, str]:
    """Our environment without SKEP_ settings, plus these.

    Bytecode is cached in a separate folder, as for any installed program: some build machines
    disable it, and compiling everything at each start takes a second.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SKEP_")}
    kept.pop("PYTHONDONTWRITEBYTECODE", None)
    return {**kept, "PYTHONPYCACHEPREFIX": str(PEERS / "bytecode"), **settings}


def door_of(folder: Path, child: subprocess.Popen[bytes]) -> CenterDoor:
    """Wait for the files that a center writes when it listens."""
    deadline = time.monotonic() + START_SECONDS
    while not _is_written(folder / "center.url"):
        if child.poll() is not None or time.monotonic() > deadline:
            raise Wrong("the center did not start")
        time.sleep(0.01)
    token = (folder / "admin.token").read_text().strip()
    return CenterDoor((folder / "center.url").read_text().strip(), token, child.pid)


def _is_written(file: Path) -> bool:
    """A file exists a moment before its content."""
    return file.exists() and file.read_text().endswith("\n")


@contextmanager
def running_center(folder: Path, **settings: str) -> Iterator[CenterDoor]:
    """`skep center` on a free port, with its data in `folder`, until the block ends."""
    command = [sys.executable, "-m", "skep", "center", "--data", str(folder), "--port", "0"]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(
        command, cwd=ROOT, env=clean_environment(**settings), stdout=quiet, stderr=quiet
    ) as child:
        try:
            yield door_of(folder, child)
        finally:
            child.terminate()
            child.wait(STOP_SECONDS)
