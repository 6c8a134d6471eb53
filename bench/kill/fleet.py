"""The processes of one set-up, started, killed and restarted by their supervisor.

Real processes of the real program: `skep center` and `skep agent`. The site is separate and never
killed, because its hits are evidence.
"""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.centers import CenterDoor, Refused, clean_environment
from bench.figures import Wrong
from bench.processes import ROOT
from skep.testing.private import free_port
from skep.testing.servers import Redis

READY_SECONDS = 30.0
STOP_SECONDS = 20.0
AGENTS = ("agent-1", "agent-2")
CONCURRENCY = 8
#: Settings for a fast recovery between many kills; all others are the defaults.
HASTE = {
    "SKEP_CENTER_ALIVE_AFTER": "3",
    "SKEP_CENTER_HEARTBEAT_EVERY": "0.5",
    "SKEP_LANES_LEASE_SECONDS": "5",
    "SKEP_LANES_RECONCILE_EVERY": "1",
}
UNREACHABLE = (OSError, http.client.HTTPException, Refused)


class Process:
    """One process that can be killed; its output goes to a log next to its data."""

    def __init__(self, name: str, command: list[str], environment: dict[str, str], log: Path):
        self.name = name
        self._command = command
        self._environment = environment
        self._log = log
        self._child: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._child = subprocess.Popen(
                self._command, cwd=ROOT, env=self._environment, stdout=log, stderr=log
            )

    def kill(self) -> None:
        """kill -9, and wait until the kernel has reaped it."""
        assert self._child is not None
        if self._child.poll() is not None:
            raise Wrong(f"{self.name} ended by itself:\n{self.log_tail()}")
        self._child.kill()
        self._child.wait()

    def stop(self) -> None:
        if self._child is None or self._child.poll() is not None:
            return
        self._child.terminate()
        try:
            self._child.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()

    def log_tail(self) -> str:
        return self._log.read_text(errors="replace")[-1500:] if self._log.exists() else ""


class Witness:
    """The site: it serves pages and counts the requests for each."""

    def __init__(self, pages: int, latency: float) -> None:
        command = [sys.executable, "-m", "bench.kill.site", str(pages), str(latency)]
        self._child = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.url: str = self._line()["url"]

    def hits(self) -> dict[str, int]:
        """Path -> number of requests, as the site counts them."""
        assert self._child.stdin is not None
        self._child.stdin.write("hits\n")
        self._child.stdin.flush()
        return {path: int(times) for path, times in self._line().items()}

    def _line(self) -> dict[str, Any]:
        assert self._child.stdout is not None
        found: dict[str, Any] = json.loads(self._child.stdout.readline())
        return found

    def close(self) -> None:
        with self._child:
            self._child.kill()


@dataclass(slots=True)
class Fleet:
    """A center, two agents, optionally a Redis; and their folders."""

    folder: Path
    settings: dict[str, str]
    redis: Redis | None = None
    #: Seconds from each start of the center to its first 200 on /readyz.
    ready_after: list[float] = field(default_factory=list)
    _port: int = 0
    _processes: dict[str, Process] = field(default_factory=dict)

    @property
    def victims(self) -> list[str]:
        return ["center", *AGENTS, *(["redis"] if self.redis else [])]

    @property
    def door(self) -> CenterDoor:
        token = (self.folder / "center" / "admin.token").read_text().strip()
        return CenterDoor(f"http://127.0.0.1:{self._port}", token)

    def start(self) -> None:
        """Start the center first: it makes the agents' token."""
        self._port = free_port()
        data = self.folder / "center"
        self._add("center", ["center", "--data", str(data), "--port", str(self._port)])
        self.start_center()
        url, token = f"http://127.0.0.1:{self._port}", data / "agent.token"
        for name in AGENTS:
            place = ["--data", str(self.folder / name), "--name", name]
            reach = ["--center", url, "--token-file", str(token)]
            self._add(name, ["agent", *reach, *place, "--concurrency", str(CONCURRENCY)])
            self._processes[name].start()

    def _add(self, name: str, arguments: list[str]) -> None:
        environment = clean_environment(**HASTE, SKEP_EGRESS_ALLOW="127.0.0.0/8", **self.settings)
        command = [sys.executable, "-m", "skep", *arguments]
        log = self.folder / f"{name}.log"
        self._processes[name] = Process(name, command, environment, log)

    def start_center(self) -> None:
        """Start it and wait until it is ready."""
        begun = time.monotonic()
        self._processes["center"].start()
        while not self._ready():
            if time.monotonic() - begun > READY_SECONDS:
                raise Wrong(f"center not ready:\n{self._processes['center'].log_tail()}")
            time.sleep(0.01)
        self.ready_after.append(time.monotonic() - begun)

    def _ready(self) -> bool:
        line = http.client.HTTPConnection("127.0.0.1", self._port, timeout=5)
        try:
            line.request("GET", "/readyz")
            return line.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            line.close()

    def kill(self, victim: str) -> None:
        if victim == "redis":
            assert self.redis is not None
            self.redis.kill()
        else:
            self._processes[victim].kill()

    def revive(self, victim: str) -> None:
        if victim == "redis":
            assert self.redis is not None
            self.redis.start()
        elif victim == "center":
            self.start_center()
        else:
            self._processes[victim].start()

    def ledger(self, *, audit: bool = False) -> dict[str, int] | None:
        """The center's ledger; None while no center answers."""
        try:
            found = self.door.call("GET", f"/api/v1/ledger{'?audit=true' if audit else ''}")
        except UNREACHABLE:
            return None
        return {**found["ledger"], "unaccounted": found["unaccounted"]}

    def stop(self) -> None:
        for process in reversed(self._processes.values()):
            process.stop()

    def tails(self) -> str:
        """The ends of all logs, for an analysis."""
        return "\n".join(f"== {one.name}\n{one.log_tail()}" for one in self._processes.values())
