"""Real centers and agents in separate processes, for tests that kill them.

They run the command line, `skep center` and `skep agent`, as users do, and end with their `with`
block, also when the test itself is killed.

    with CenterProcess(folder) as center, AgentProcess(folder / "a", [center.url],
                                                       center.agent_token) as agent:
        agent.kill()                     # SIGKILL; `pause` and `resume` freeze and thaw
        agent.start()                    # again: the same folder, so the same agent
        assert agent.terminate() == 0    # SIGTERM, its exit code
        center.kill(); center.start()    # on the same port

Every method blocks; on an event loop use `asyncio.to_thread`. `skep.testing.fleet` combines them
with a site and a client.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from skep.testing.grounds.isolation import code_setting
from skep.testing.private import HOST, STOP_SECONDS, Server, ServerFailed, exchange

#: Settings with which failures are detected within seconds. Use them for tests only.
QUICK: Mapping[str, str] = {
    "SKEP_CENTER_ALIVE_AFTER": "2",
    "SKEP_CENTER_HEARTBEAT_EVERY": "0.3",
    "SKEP_CENTER_SWEEP_EVERY": "0.2",
    "SKEP_CENTER_SELF_CHECK_EVERY": "1",
    "SKEP_LANES_LEASE_SECONDS": "4",
    "SKEP_LANES_RECONCILE_EVERY": "0.5",
    "SKEP_AGENT_REPORT_EVERY": "0.1",
    "SKEP_AGENT_LEASE_WAIT": "1",
    "SKEP_AGENT_DRAIN_SECONDS": "2",
    "SKEP_EGRESS_ALLOW": "127.0.0.0/8",
}


class SkepProcess(Server):
    """A command of the `skep` program that runs until it is stopped."""

    package = "python3"
    program = sys.executable

    def __init__(self, folder: Path, env: Mapping[str, str] | None = None) -> None:
        super().__init__(folder)
        code = {"SKEP_AGENT_CODE": code_setting(), "SKEP_JOBS_CODE": code_setting()}
        self.env = {**QUICK, **code, **(env or {})}
        self.starts = 0
        self._log_began = 0

    def start(self) -> None:
        """Start or restart it, and wait until it is ready; raises ServerFailed."""
        if not self.running:
            self._log_began = self.log.stat().st_size if self.log.exists() else 0
            self.starts += 1
        super().start()

    def terminate(self, seconds: float = STOP_SECONDS) -> int:
        """Send SIGTERM; returns the exit code, raises subprocess.TimeoutExpired."""
        if self._process is None:
            raise ServerFailed("it is not running")
        self._process.send_signal(signal.SIGTERM)
        code = self._process.wait(seconds)
        self._reap()
        return code

    def wait(self, seconds: float = STOP_SECONDS) -> int:
        """Wait for a process that ends by itself; returns its exit code."""
        if self._process is None:
            raise ServerFailed("it is not running")
        code = self._process.wait(seconds)
        self._reap()
        return code

    def said(self) -> list[str]:
        """Log lines since the last start."""
        with self.log.open("rb") as log:
            log.seek(self._log_began)
            return log.read().decode(errors="replace").splitlines()

    def _process_options(self) -> dict[str, Any]:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("SKEP_")}
        return {"env": {**inherited, **self.env}}


class CenterProcess(SkepProcess):
    """`skep center` in a data folder, or `skep up`: with an agent in the same process."""

    def __init__(
        self, folder: Path, env: Mapping[str, str] | None = None, *, with_agent: bool = False
    ) -> None:
        super().__init__(folder, env)
        self._verb = "up" if with_agent else "center"

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    @property
    def store_url(self) -> str:
        return self.env.get("SKEP_STORE_URL", f"sqlite:///{self.folder / 'skep.db'}")

    @property
    def admin_token(self) -> str:
        return (self.folder / "admin.token").read_text().strip()

    @property
    def agent_token(self) -> Path:
        """The file that contains it."""
        return self.folder / "agent.token"

    def ready(self) -> bool:
        """The current result of /readyz."""
        return self._answers(self.port)

    def _command(self, port: int) -> list[str]:
        place = ["--data", str(self.folder), f"--port={port}"]
        return [self._binary, "-m", "skep", self._verb, *place]

    def _answers(self, port: int) -> bool:
        question = f"GET /readyz HTTP/1.1\r\nHost: {HOST}:{port}\r\n\r\n".encode()
        return exchange(port, question, size=12) == b"HTTP/1.1 200"


class AgentProcess(SkepProcess):
    """`skep agent` in a data folder. Ready means that a center has accepted it."""

    def __init__(
        self,
        folder: Path,
        centers: Sequence[str],
        token_file: Path,
        env: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(folder, {"SKEP_AGENT_NAME": folder.name, **(env or {})})
        self.centers = list(centers)
        self._token_file = token_file

    @property
    def url(self) -> str:
        """The center: an agent makes only outbound connections."""
        return ",".join(self.centers)

    @property
    def id(self) -> str:
        """The same for every process of the folder; raises OSError before the first start."""
        return (self.folder / "agent" / "agent-id").read_text().strip()

    def _command(self, port: int) -> list[str]:  # noqa: ARG002 - an agent has no port
        place = ["--center", self.url, "--token-file", str(self._token_file)]
        return [self._binary, "-m", "skep", "agent", *place, "--data", str(self.folder)]

    def _answers(self, port: int) -> bool:  # noqa: ARG002 - see its log
        return any("registered at" in line for line in self.said())


@asynccontextmanager
async def running_centers(
    folder: Path, env: Mapping[str, str], count: int
) -> AsyncIterator[list[CenterProcess]]:
    """`count` centers of one test, started one after the other; on an event loop."""
    with ExitStack() as stack:
        centers = [CenterProcess(folder / f"c{number}", env) for number in range(count)]
        for center in centers:
            await asyncio.to_thread(stack.enter_context, center)
        yield centers


class JoinedAgent(AgentProcess):
    """`skep agent` with its folder as the only option."""

    def _command(self, port: int) -> list[str]:  # noqa: ARG002 - an agent has no port
        return [self._binary, "-m", "skep", "agent", "--data", str(self.folder)]
