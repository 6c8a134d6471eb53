"""Packs the package of an application once per run and stores it. Centers only.

The store has packages by digest, so that every center can send them and two runs with the
same package share it.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from skep.errors import Conflict, InvalidInput
from skep.jobs.apps.git_checkout import GitPacker
from skep.jobs.apps.package_file import CHUNK, Packed, as_packed, pack_place
from skep.jobs.apps.package_source import git_source
from skep.jobs.definitions.jobs_folder import inside
from skep.runtime.clock import Clock
from skep.store.ports import Store
from skep.store.ports.apps import Package


class Packer:
    """Packs the package of a job. `folder` is the folder for jobs, `limit` in bytes."""

    def __init__(
        self, store: Store, folder: Path, limit: int, git: GitPacker, clock: Clock
    ) -> None:
        self._store = store
        self._folder = folder
        self._limit = limit
        self._git = git
        self._clock = clock

    async def pack(self, package: str) -> Package:
        """Pack and store; it is stored when this returns. Raises InvalidInput for what cannot be
        packed, and the errors of the store."""
        with tempfile.TemporaryDirectory(prefix="skep-package-", ignore_cleanup_errors=True) as at:
            packed = await self._packed(package, Path(at))
            await self._keep(packed)
        return packed.package

    async def _packed(self, package: str, scratch: Path) -> Packed:
        try:
            if not package.startswith("git+"):
                found = inside(self._folder, Path(package))
                return await asyncio.to_thread(pack_place, found, self._limit, scratch)
            source = git_source(package)
            if source.path is not None:
                inside(self._folder, source.path)
            made = await self._git.pack(source, scratch, self._limit)
            return await asyncio.to_thread(as_packed, made, "zip", "", self._limit)
        except (OSError, ValueError) as error:
            raise InvalidInput(f"cannot pack the package: {error}") from error

    async def _keep(self, packed: Packed) -> None:
        digest = packed.package.digest
        if await self._store.packages.begin(packed.package, self._clock.now()):
            return
        with packed.path.open("rb") as file:
            number = 0
            while part := await asyncio.to_thread(file.read, CHUNK):
                await self._store.packages.add(digest, number, part)
                number += 1
        if not await self._store.packages.finish(digest):
            raise Conflict(f"the package {packed.package.name or digest} changed while it was read")
