"""Runs applications as containers with podman or docker, whichever is installed.

Runs on the agent's event loop. The engine is called with argument lists, which never contain
secrets. A container is named after its agent and instance; a guard process that waits for the
agent's end removes leftover containers, and so does the next start.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from skep.agent.apps.registries import check_registry
from skep.agent.apps.runner_contract import CannotRun, NotNow, ProcessExit, Start, ended, lower_of
from skep.agent.apps.tool_process import run_tool, tool_environment
from skep.downloaders.egress_policy import EgressPolicy
from skep.settings import AgentSettings

log = logging.getLogger(__name__)

LABEL = "skep.agent"
ANSWER_SECONDS = 30.0
PULL_SECONDS = 900.0
#: Runs its arguments when its standard input closes, which happens when the agent ends.
GUARD = 'read -r _; exec "$@" >/dev/null 2>&1'
_UNFIT = re.compile(r"[^A-Za-z0-9_.-]")


@dataclass(frozen=True, slots=True)
class ContainerEngine:
    """The program of a container engine, and how to call it."""

    program: str
    options: tuple[str, ...]
    agent: str

    def command(self, *words: str) -> list[str]:
        return [self.program, *self.options, *words]

    @property
    def kind(self) -> str:
        """podman or docker."""
        return Path(self.program).name

    @property
    def podman(self) -> bool:
        return self.kind == "podman"

    @property
    def removal(self) -> tuple[str, ...]:
        """Arguments that remove a container at once, running or not; names follow."""
        return ("rm", "--force", "--time", "0") if self.podman else ("rm", "--force")

    def name(self, start: Start) -> str:
        """The name of the container of an instance."""
        return _UNFIT.sub("_", f"skep-{self.agent}-{start.run}-{start.no}-{start.token}")

    def call(self, words: Sequence[str], seconds: float = ANSWER_SECONDS) -> tuple[int, str]:
        """(exit code, output). Blocks."""
        try:
            done = subprocess.run(  # noqa: S603 - no shell
                self.command(*words),
                env=tool_environment(),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=seconds,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return -1, str(error)
        said = done.stdout if done.returncode == 0 else done.stderr or done.stdout
        return done.returncode, said.decode(errors="replace").strip()[-1000:]

    def sweep(self) -> None:
        """Remove containers of earlier processes of this agent. Blocks."""
        label = f"label={LABEL}={self.agent}"
        code, said = self.call(["ps", "--all", "--filter", label, "--format", "{{.Names}}"])
        names = said.split() if code == 0 else []
        if names:
            log.warning("removing %d containers of an earlier agent process", len(names))
            self.call([*self.removal, *names], PULL_SECONDS)


class Containers:
    """Starts images with the engine of this machine."""

    def __init__(
        self, engine: ContainerEngine, settings: AgentSettings, egress: EgressPolicy
    ) -> None:
        self._engine = engine
        self._settings = settings
        self._egress = egress

    async def have(self, image: str) -> None:
        """Pull a missing image: that can take long, and is not part of its run time."""
        if not image or image.startswith("-"):
            raise CannotRun(f"{image[:200]!r} is not a valid image name")
        look = self._engine.command("image", "inspect", "--", image)
        if (await run_tool(look, ANSWER_SECONDS))[0] == 0:
            return
        await check_registry(image, self._egress)
        pull = self._engine.command("pull", "--quiet", "--", image)
        code, said = await run_tool(pull, PULL_SECONDS)
        if code:
            raise CannotRun(f"cannot pull image {image[:200]!r}: {said}")

    async def start(self, start: Start) -> Container:
        """Start a local image. Raises CannotRun and NotNow."""
        file = start.folder / "environment"
        await asyncio.to_thread(_write_variables, file, start.variables)
        name = self._engine.name(start)
        await asyncio.to_thread(self._engine.call, [*self._engine.removal, name])
        process, output = self._spawn(self._run(start, name, file))
        return Container(self._engine, name, process, output, self._guard(name), file)

    def _spawn(self, words: list[str]) -> tuple[subprocess.Popen[bytes], int]:
        output, write = os.pipe()
        try:
            process = subprocess.Popen(  # noqa: S603 - no shell
                self._engine.command(*words),
                env=tool_environment(),
                stdin=subprocess.DEVNULL,
                stdout=write,
                stderr=write,
                start_new_session=True,
            )
        except OSError as error:
            os.close(output)
            raise NotNow(f"cannot start {self._engine.program}: {error}") from error
        finally:
            os.close(write)
        return process, output

    def _run(self, start: Start, name: str, file: Path) -> list[str]:
        spec, limits = start.spec, start.spec.limits
        words = ["run", "--rm", "--name", name, "--label", f"{LABEL}={start.agent}"]
        words += ["--env-file", str(file), "--log-driver", "none"]
        words += ["--security-opt", "no-new-privileges"]
        if self._engine.podman:
            words += ["--http-proxy=false"]  # the agent's proxy is not for applications
        if memory := lower_of(limits.memory, self._settings.app_memory):
            words += ["--memory", f"{memory}m"]
        if limits.cpus:
            words += ["--cpus", str(limits.cpus)]
        if processes := lower_of(limits.processes, self._settings.app_processes):
            words += ["--pids-limit", str(processes)]
        if limits.files:
            words += ["--ulimit", f"nofile={limits.files}:{limits.files}"]
        if not spec.network:
            words += ["--network", "none"]
        return [*words, "--", spec.image, *spec.command]

    def _guard(self, name: str) -> subprocess.Popen[bytes]:
        """Containers do not end with the agent automatically."""
        remove = self._engine.command(*self._engine.removal, name)
        return subprocess.Popen(  # noqa: S603 - no user input
            ["/bin/sh", "-c", GUARD, "guard", *remove],
            env=tool_environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )


@dataclass(slots=True)
class Container:
    """A container that was started."""

    _engine: ContainerEngine
    _name: str
    _process: subprocess.Popen[bytes]
    output: int
    _guard: subprocess.Popen[bytes]
    #: File with its environment variables.
    _file: Path
    over: bool = False
    _paused: bool = False
    _ended: asyncio.Future[ProcessExit] | None = None

    async def wait(self) -> ProcessExit:
        if self._ended is None:
            self._ended = asyncio.ensure_future(self._wait())
        return await asyncio.shield(self._ended)

    async def _wait(self) -> ProcessExit:
        ending = await ended(self._process)
        self.over = True
        # Perhaps only the client has ended.
        await self._tell(*self._engine.removal)
        await asyncio.to_thread(self._dismiss_guard)
        self._file.unlink(missing_ok=True)
        return ending

    def _dismiss_guard(self) -> None:
        self._guard.kill()
        self._guard.communicate()

    async def terminate(self) -> None:
        await self.resume()  # a paused process would not handle the signal
        await self._tell("kill", "--signal", "TERM")

    async def kill(self) -> None:
        await self._tell(*self._engine.removal)

    async def pause(self) -> str:
        trouble = await self._tell("pause")
        self._paused = not trouble
        return trouble

    async def resume(self) -> str:
        if not self._paused:
            return ""
        self._paused = False
        return await self._tell("unpause")

    async def _tell(self, *words: str) -> str:
        """The error; "" = none."""
        code, said = await asyncio.to_thread(self._engine.call, [*words, self._name])
        return said if code else ""


def _write_variables(file: Path, variables: dict[str, str]) -> None:
    """Writes a private file: the variables include secrets."""
    for name, value in variables.items():
        if "\n" in value or "\r" in value:
            raise CannotRun(f"variable {name} contains a line break, which images do not support")
    file.unlink(missing_ok=True)
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as stream:
        stream.writelines(f"{name}={value}\n" for name, value in variables.items())
