"""Packs a commit of a git repository into a zip. Run by centers only.

git is started by argument vector, with `--` before the URL, one allowed protocol, no
prompts, no hooks, no configuration of the machine, and a time limit. A host is resolved once,
every address is checked by the egress rules, and git connects only to those: it never resolves
the name again. Redirects to other places are never followed.
"""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from skep.downloaders.egress_policy import EgressPolicy
from skep.errors import InvalidInput
from skep.jobs.apps.package_source import GitSource
from skep.model.hosts.named_places import place_of
from skep.runtime.child_processes import death_signal

SECONDS = 300.0
SSH_PORT = 22
#: Factor of the size limit: history and packing need more than the result; the limit of one file.
ROOM = 4
#: Bytes of git's output that are kept.
HEARD = 8192
_QUIET = (
    "-c", "core.hooksPath=/dev/null",
    "-c", "core.fsmonitor=false",
    "-c", "core.symlinks=false",
    "-c", "credential.helper=",
    "-c", "http.followRedirects=false",
    "-c", "protocol.allow=never",
    "-c", "gc.auto=0",
)  # fmt: skip
_SSH = "ssh -oBatchMode=yes -oStrictHostKeyChecking=yes -oConnectTimeout=20"


class GitPacker:
    """Fetches one commit and packs it into a zip, in a folder of the caller."""

    def __init__(
        self, egress: EgressPolicy, environment: Mapping[str, str], seconds: float = SECONDS
    ) -> None:
        self._egress = egress
        self._path = environment.get("PATH", os.defpath)
        self._seconds = seconds

    async def pack(self, source: GitSource, scratch: Path, limit: int) -> Path:
        """The zip; raises InvalidInput with the message of git."""
        addresses = await self._addresses(source.host, source.port)
        bare, made = scratch / "repository", scratch / "package.zip"
        environment = self._environment(source, scratch)
        url, words = _pinned(source, addresses, environment)
        run = _Git(source, bare, environment, limit * ROOM, words)
        try:
            async with asyncio.timeout(self._seconds):
                await run("init", "--quiet", "--bare", "--template=", "--", str(bare))
                await run(*_FETCH, "--", url, source.ref, inside=True)
                commit = await run(*_RESOLVE, inside=True)
                await run(*_ARCHIVE, f"--output={made}", commit, inside=True)
        except TimeoutError:
            text = f"git took longer than {self._seconds:g} s for {source.url}"
            raise InvalidInput(text) from None
        return made

    async def _addresses(self, host: str, port: int) -> list[str]:
        """Addresses of the host, [] without a host; raises InvalidInput unless all are allowed."""
        if not host:
            return []
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise InvalidInput(f"cannot resolve the host {host} of the package: {error}") from error
        addresses = list(dict.fromkeys(str(place[0]) for *_, place in found))
        egress, place = self._egress.naming_host(host, port), place_of(host, port)
        for address in addresses:
            if why := egress.check(address, port, place):
                raise InvalidInput(f"cannot fetch the package from {host}: {why}")
        return addresses

    def _environment(self, source: GitSource, scratch: Path) -> dict[str, str]:
        return {
            "PATH": self._path,
            "HOME": str(scratch),
            "LC_ALL": "C",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_ASKPASS": "/bin/false",
            "SSH_ASKPASS": "/bin/false",
            "GIT_SSH_COMMAND": _SSH,
            "GIT_ALLOW_PROTOCOL": source.protocol,
            "GIT_NO_REPLACE_OBJECTS": "1",
        }


def _pinned(
    source: GitSource, addresses: list[str], environment: dict[str, str]
) -> tuple[str, tuple[str, ...]]:
    """The URL and options with which git connects to these addresses, under the host's name.
    Settings without an option of git go into the environment."""
    if not addresses:
        return source.url, ()
    host, port = source.host, source.port
    if source.protocol == "https":
        places = ",".join(map(_bracketed, addresses))
        return source.url, ("-c", f"http.curloptResolve={host}:{port}:{places}")
    if source.protocol == "ssh":
        known = host if port == SSH_PORT else f"[{host}]:{port}"
        environment["GIT_SSH_COMMAND"] += f" -oHostName={addresses[0]} -oHostKeyAlias={known}"
        return source.url, ()
    environment["GIT_OVERRIDE_VIRTUAL_HOST"] = f"{_bracketed(host)}:{port}"
    path = urlsplit(source.url).path
    return f"git://{_bracketed(addresses[0])}:{port}{path}", ()


def _bracketed(address: str) -> str:
    return f"[{address}]" if ":" in address else address


_FETCH = ("fetch", "--quiet", "--depth=1", "--no-tags", "--no-recurse-submodules")
_RESOLVE = ("rev-parse", "--verify", "--end-of-options", "FETCH_HEAD^{commit}")
_ARCHIVE = ("archive", "--format=zip")


class _Git:
    """git in one repository; its process group ends when the caller stops waiting."""

    def __init__(
        self,
        source: GitSource,
        bare: Path,
        environment: dict[str, str],
        largest: int,
        options: tuple[str, ...],
    ) -> None:
        self._options = options
        self._source = source
        self._bare = bare
        self._environment = environment
        self._largest = largest

    async def __call__(self, *arguments: str, inside: bool = False) -> str:
        where = ("--git-dir", str(self._bare)) if inside else ()
        try:
            child = await asyncio.create_subprocess_exec(
                *("git", *_QUIET, *self._options, *where, *arguments),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                env=self._environment,
                start_new_session=True,
                preexec_fn=_bounded(self._largest),
            )
        except OSError as error:
            raise InvalidInput(f"cannot start git: {error}") from error
        try:
            said = await _heard(child)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            await child.wait()
        text = said.decode(errors="replace").strip()
        if child.returncode:
            last = (text.splitlines() or ["no output"])[-1][:500]
            raise InvalidInput(f"git cannot fetch {self._source.ref} of {self._source.url}: {last}")
        return text


async def _heard(child: asyncio.subprocess.Process) -> bytes:
    """The end of its output, because a server can make git write without limit."""
    said = b""
    assert child.stdout is not None  # noqa: S101 - it was asked for
    while part := await child.stdout.read(HEARD):
        said = (said + part)[-HEARD:]
    await child.wait()
    return said


def _bounded(largest: int) -> Callable[[], None]:
    """Runs in the child before git: limits file sizes, and ends the child with its parent."""
    dies = death_signal(os.getpid())

    def begin() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest, largest))
        if dies is not None:
            dies()

    return begin
