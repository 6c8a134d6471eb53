"""Packages of applications on this agent: fetched once, checked, unpacked, stored by digest.

A zip becomes a folder, a wheel its own environment. Unpacked packages are never changed. Unused
ones are deleted when space is needed, the least recently used first. A problem of a package is
reported as a reason and never ends the agent.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import re
import shutil
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from skep.agent.apps.runner_contract import CannotRun, NotNow
from skep.agent.apps.wheel_install import Installer, wheel_name
from skep.agent.apps.zip_unpacking import unpack
from skep.errors import NotFound, SkepError, TooLarge
from skep.model.jobs.app import AppSpec
from skep.runtime.files import write_durably
from skep.wire.client import CenterClient

log = logging.getLogger(__name__)

_DIGEST = re.compile(r"[0-9a-f]{64}\Z")
_READY = "ready"


@dataclass(frozen=True, slots=True)
class Unpacked:
    """A package on this machine."""

    #: Working directory of its programs.
    folder: Path
    #: Folders of its programs, before the system's.
    paths: tuple[Path, ...] = ()


class Packages:
    """One folder of packages, used by all instances of an agent."""

    def __init__(
        self, folder: Path, bound: int, client: CenterClient, installer: Installer
    ) -> None:
        self._installer = installer
        self._folder = folder
        self._bound = bound
        self._client = client
        self._locks: dict[str, asyncio.Lock] = {}
        self._used: Counter[str] = Counter()

    def open(self) -> None:
        """Delete unfinished packages of a killed agent. Blocks."""
        self._folder.mkdir(parents=True, exist_ok=True)
        for entry in self._folder.iterdir():
            if not (entry / _READY).is_file():
                _delete(entry)

    async def take(self, spec: AppSpec) -> Unpacked:
        """Get a package and keep it until `give_back`. Raises CannotRun and NotNow."""
        digest = spec.package
        if not _DIGEST.match(digest):
            raise CannotRun(f"{digest[:100]!r} is not a valid package digest")
        self._used[digest] += 1
        try:
            async with self._locks.setdefault(digest, asyncio.Lock()):
                return await self._have(spec)
        except BaseException:
            self.give_back(spec)
            raise

    def give_back(self, spec: AppSpec) -> None:
        """Release one use."""
        self._used[spec.package] -= 1

    async def _have(self, spec: AppSpec) -> Unpacked:
        place = self._folder / spec.package
        try:
            if await asyncio.to_thread(_touch, place / _READY):
                return _as_it_lies(place, spec)
            await self._bring(place, spec)
        except OSError as error:
            await asyncio.to_thread(_delete, place)
            raise NotNow(f"cannot store the package: {error}") from error
        except BaseException:
            await asyncio.to_thread(_delete, place)
            raise
        await asyncio.to_thread(self._make_room)
        return _as_it_lies(place, spec)

    async def _bring(self, place: Path, spec: AppSpec) -> None:
        await asyncio.to_thread(_fresh, place)
        file = place / (wheel_name(spec) if spec.package_kind == "wheel" else "package.zip")
        await self._fetch(spec.package, file)
        if spec.package_kind == "wheel":
            await self._installer.install(file, place / "environment")
            (place / "files").mkdir()
        elif spec.package_kind == "zip":
            await asyncio.to_thread(unpack, file, place / "files", self._bound)
        else:
            raise CannotRun(f"this agent does not support packages of kind {spec.package_kind!r}")
        file.unlink()
        size = await asyncio.to_thread(_size, place)
        await asyncio.to_thread(write_durably, place / _READY, str(size).encode())

    async def _fetch(self, digest: str, file: Path) -> None:
        try:
            await self._client.package(digest, file, self._bound)
        except (NotFound, TooLarge) as error:
            raise CannotRun(f"the center refused the package: {error.detail}") from error
        except SkepError as error:
            raise NotNow(f"cannot fetch the package: {error.detail}") from error
        if await asyncio.to_thread(_digest, file) != digest:
            raise CannotRun("the SHA-256 of the package differs from the announced one")

    def _make_room(self) -> None:
        """Delete unused packages, the least recently used first, until the rest fits."""
        ready = [entry / _READY for entry in self._folder.iterdir() if (entry / _READY).is_file()]
        ready.sort(key=lambda path: path.stat().st_mtime)
        total = sum(int(path.read_text() or "0") for path in ready)
        for path in ready:
            if total <= self._bound:
                return
            if not self._used[path.parent.name]:
                total -= int(path.read_text() or "0")
                _delete(path.parent)


def _as_it_lies(place: Path, spec: AppSpec) -> Unpacked:
    paths = (place / "environment" / "bin",) if spec.package_kind == "wheel" else ()
    return Unpacked(place / "files", paths)


def _touch(ready: Path) -> bool:
    if not ready.is_file():
        return False
    os.utime(ready)
    return True


def _fresh(place: Path) -> None:
    _delete(place)
    place.mkdir(mode=0o755)


def _delete(place: Path) -> None:
    """Deletes the marker first: a partial package must never look complete."""
    (place / _READY).unlink(missing_ok=True)
    shutil.rmtree(place, ignore_errors=True)


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _size(place: Path) -> int:
    return sum(entry.lstat().st_size for entry in place.rglob("*"))
