"""Packs a commit of a git repository into a zip. Run by centers only.

`downloaders.git` starts git safely and makes it connect to the addresses that the egress rules
allowed. A time limit and a limit of file sizes hold for the whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from skep.downloaders.egress_policy import EgressPolicy
from skep.downloaders.git.pinned import pin
from skep.downloaders.git.program import GitFailed, GitProgram
from skep.errors import InvalidInput
from skep.jobs.apps.package_source import GitSource

SECONDS = 300.0
#: Factor of the size limit: history and packing need more than the result; the limit of one file.
ROOM = 4
_FETCH = ("fetch", "--quiet", "--depth=1", "--no-tags", "--no-recurse-submodules")
_RESOLVE = ("rev-parse", "--verify", "--end-of-options", "FETCH_HEAD^{commit}")
_ARCHIVE = ("archive", "--format=zip")


class GitPacker:
    """Fetches one commit and packs it into a zip, in a folder of the caller."""

    def __init__(
        self, egress: EgressPolicy, environment: Mapping[str, str], seconds: float = SECONDS
    ) -> None:
        self._egress = egress
        self._git = GitProgram(environment)
        self._seconds = seconds

    async def pack(self, source: GitSource, scratch: Path, limit: int) -> Path:
        """The zip; raises InvalidInput with the message of git."""
        try:
            async with asyncio.timeout(self._seconds):
                return await self._pack(source, scratch, limit)
        except GitFailed as error:
            text = f"git cannot fetch {source.ref} of {source.url}: {error}"
            raise InvalidInput(text) from None
        except TimeoutError:
            text = f"git took longer than {self._seconds:g} s for {source.url}"
            raise InvalidInput(text) from None

    async def _pack(self, source: GitSource, scratch: Path, limit: int) -> Path:
        remote = await pin(source, self._egress)
        bare, made = scratch / "repository", scratch / "package.zip"
        run = partial(self._git.run, home=scratch, remote=remote, largest=limit * ROOM)
        inside = ("--git-dir", str(bare))
        await run("init", "--quiet", "--bare", "--template=", "--", str(bare))
        await run(*inside, *_FETCH, "--", remote.url, source.ref)
        commit = (await run(*inside, *_RESOLVE)).decode().strip()
        await run(*inside, *_ARCHIVE, f"--output={made}", commit)
        return made
