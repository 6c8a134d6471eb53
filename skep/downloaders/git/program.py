"""Starts git safely: by argument vector, with one allowed protocol, no prompts, no hooks, and no
configuration of the machine. Its process group ends when the caller stops waiting.

Secrets never pass the argument vector: they are configuration in the environment of the process.
"""

from __future__ import annotations

import asyncio
import os
import resource
import shlex
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from skep.downloaders.git.pinned import Pinned
from skep.errors import InvalidInput
from skep.runtime.child_processes import death_signal

#: Bytes of git's messages that are kept, and of its output unless the caller asks for more.
HEARD = 8192
#: Bytes that are read at once.
_PIECE = 65536
_SHOWN = 500
_QUIET = (
    "-c", "core.hooksPath=/dev/null",
    "-c", "core.fsmonitor=false",
    "-c", "core.symlinks=false",
    "-c", "credential.helper=",
    "-c", "http.followRedirects=false",
    "-c", "protocol.allow=never",
    "-c", "gc.auto=0",
)  # fmt: skip
_SSH = ("ssh", "-oBatchMode=yes", "-oStrictHostKeyChecking=yes", "-oConnectTimeout=20")


class GitFailed(Exception):
    """git ended with an error; the text is its last line."""


class GitProgram:
    """git on this machine. `known_hosts`: the only SSH host keys that are accepted; None = those of
    the user. `ca_file` replaces the machine's certificates."""

    def __init__(
        self,
        environment: Mapping[str, str],
        *,
        known_hosts: Path | None = None,
        ca_file: str = "",
    ) -> None:
        self._path = environment.get("PATH", os.defpath)
        self._known_hosts = known_hosts
        self._ca_file = ca_file

    async def run(
        self,
        *arguments: str,
        home: Path,
        remote: Pinned | None = None,
        secret: Mapping[str, str] | None = None,
        largest: int = resource.RLIM_INFINITY,
        output: int = HEARD,
    ) -> bytes:
        """What git wrote. `home`: an absolute folder of the caller without a repository;
        `largest`: bytes of one file; `secret`: configuration that no other user may see; `output`:
        bytes after which git is ended. Raises GitFailed."""
        options = (*_QUIET, *(remote.options if remote else ()))
        try:
            child = await asyncio.create_subprocess_exec(
                *("git", *options, *arguments),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=self._environment(home, remote, secret or {}),
                cwd=home,
                start_new_session=True,
                preexec_fn=_bounded(largest),
            )
        except OSError as error:
            raise InvalidInput(f"cannot start git: {error}") from error
        try:
            return await _answer(child, output)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            await child.wait()

    def _environment(
        self, home: Path, remote: Pinned | None, secret: Mapping[str, str]
    ) -> dict[str, str]:
        return {
            "PATH": self._path,
            "HOME": str(home),
            # No repository above: the folder of the caller may be one, with its own settings.
            "GIT_CEILING_DIRECTORIES": str(home.parent),
            "LC_ALL": "C",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_ASKPASS": "/bin/false",
            "SSH_ASKPASS": "/bin/false",
            "GIT_SSH_COMMAND": self._ssh(remote.ssh_options if remote else ()),
            "GIT_ALLOW_PROTOCOL": remote.protocol if remote else "none",
            "GIT_NO_REPLACE_OBJECTS": "1",
            **({"GIT_SSL_CAINFO": self._ca_file} if self._ca_file else {}),
            **_configuration(secret),
            **(remote.environment if remote else {}),
        }

    def _ssh(self, options: tuple[str, ...]) -> str:
        known = self._known_hosts
        files = (f"-oUserKnownHostsFile={known}", "-oGlobalKnownHostsFile=/dev/null")
        return shlex.join((*_SSH, *(files if known is not None else ()), *options))


def _configuration(values: Mapping[str, str]) -> dict[str, str]:
    """Configuration of git as variables, which other users of the machine cannot read."""
    found = {"GIT_CONFIG_COUNT": str(len(values))} if values else {}
    for number, (key, value) in enumerate(values.items()):
        found |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return found


async def _answer(child: asyncio.subprocess.Process, limit: int) -> bytes:
    assert child.stdout is not None  # noqa: S101 - both were asked for
    assert child.stderr is not None  # noqa: S101
    said = asyncio.create_task(_tail(child.stderr))
    try:
        found = await _whole(child.stdout, limit)
        text = await said
    finally:
        said.cancel()
    if await child.wait():
        lines = (text or found[-HEARD:]).decode(errors="replace").strip().splitlines()
        raise GitFailed((lines or ["no output"])[-1][:_SHOWN])
    return found


async def _whole(stream: asyncio.StreamReader, limit: int) -> bytes:
    found = bytearray()
    while part := await stream.read(_PIECE):
        found += part
        if len(found) > limit:
            raise GitFailed(f"git wrote more than {limit} bytes")
    return bytes(found)


async def _tail(stream: asyncio.StreamReader) -> bytes:
    """The end of its messages, because a server can make git write without limit."""
    said = b""
    while part := await stream.read(_PIECE):
        said = (said + part)[-HEARD:]
    return said


def _bounded(largest: int) -> Callable[[], None]:
    """Runs in the child before git: limits file sizes, and ends the child with its parent."""
    dies = death_signal(os.getpid())

    def begin() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest))
        if dies is not None:
            dies()

    return begin
