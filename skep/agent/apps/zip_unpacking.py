"""Unpacks a zip that may be malicious. Blocking: agents call it in a thread.

Nothing is written outside of the target folder, no more is written than allowed, whatever the zip
claims, and no link in it leads out.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import zipfile
import zlib
from pathlib import Path, PurePosixPath

from skep.agent.apps.runner_contract import CannotRun

#: Maximum files and folders of one package.
ENTRIES = 100_000
PIECE = 1024 * 1024
LINK_LENGTH = 4096
_DRIVE = re.compile(r"^[A-Za-z]:")
_PROGRAMS = (b"#!", b"\x7fELF")
_BROKEN = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError)
#: Errors of invalid entries: a duplicate name, a file as a folder, a name that is too long.
_UNFIT = frozenset(
    {errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.EINVAL}
    | {errno.ENOENT, errno.ELOOP, errno.EILSEQ}
)


def unpack(file: Path, target: Path, bound: int) -> int:
    """Unpack into a new folder; returns its size in bytes. Raises CannotRun and OSError."""
    target.mkdir(mode=0o755)
    try:
        with zipfile.ZipFile(file) as archive:
            return _Unpacking(archive, target, bound).all()
    except _BROKEN as error:
        raise CannotRun(f"the package is not a valid zip: {error}") from error
    except OSError as error:
        if error.errno not in _UNFIT:
            raise
        where = os.fspath(error.filename2 or error.filename or "").removeprefix(f"{target}/")
        raise CannotRun(
            f"the package has an entry that cannot be written: {where[:200]!r} ({error.strerror})"
        ) from error


class _Unpacking:
    def __init__(self, archive: zipfile.ZipFile, target: Path, bound: int) -> None:
        self._archive = archive
        self._target = target
        self._left = self._bound = bound

    def all(self) -> int:
        entries = self._archive.infolist()
        if len(entries) > ENTRIES:
            raise CannotRun(f"the package has {len(entries)} entries; {ENTRIES} is the limit")
        links = [entry for entry in entries if _is_link(entry)]
        for entry in entries:
            if entry.is_dir():
                _make(self._place(entry))
            elif not _is_link(entry):
                self._file(entry)
        # Links last, so that nothing is ever written through one.
        for entry in links:
            self._link(entry)
        self._check_links(links)
        return self._bound - self._left

    def _place(self, entry: zipfile.ZipInfo) -> Path:
        name = entry.filename
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or "\\" in name or _DRIVE.match(name):
            raise CannotRun(f"the package has an entry that leads out of it: {name[:200]!r}")
        return self._target / path

    def _file(self, entry: zipfile.ZipInfo) -> None:
        place = self._place(entry)
        _make(place.parent)
        with self._archive.open(entry) as source, place.open("xb") as file:
            head = piece = source.read(PIECE)
            while piece:
                self._count(len(piece))
                file.write(piece)
                piece = source.read(PIECE)
        runs = (entry.external_attr >> 16) & stat.S_IXUSR or head.startswith(_PROGRAMS)
        place.chmod(0o755 if runs else 0o644)

    def _count(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise CannotRun(f"the unpacked package exceeds {self._bound} bytes")

    def _link(self, entry: zipfile.ZipInfo) -> None:
        place = self._place(entry)
        if place.parent.resolve() != place.parent.absolute():
            raise CannotRun(f"the package has a link below a link: {entry.filename[:200]!r}")
        _make(place.parent)
        with self._archive.open(entry) as source:
            place.symlink_to(os.fsdecode(source.read(LINK_LENGTH)))

    def _check_links(self, links: list[zipfile.ZipInfo]) -> None:
        for entry in links:
            leads_to = os.path.realpath(self._place(entry))
            if not Path(leads_to).is_relative_to(os.path.realpath(self._target)):
                raise CannotRun(f"the package has a link that leads out: {entry.filename[:200]!r}")


def _is_link(entry: zipfile.ZipInfo) -> bool:
    return stat.S_ISLNK(entry.external_attr >> 16)


def _make(folder: Path) -> None:
    folder.mkdir(mode=0o755, parents=True, exist_ok=True)
