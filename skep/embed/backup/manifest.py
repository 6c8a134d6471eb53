"""The manifest of a backup: what it holds, and whether that is still so. Blocking."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Literal

import msgspec

from skep.errors import ConfigurationError

NAME = "manifest.json"
FORMAT = 1
STORE, DATA, ARCHIVE = "store", "data", "archive"
#: Folders that files of a backup are in.
PARTS = (STORE, DATA, ARCHIVE)
_CHUNK = 2**20

Note = Callable[[str], None]
#: What became of the archive.
Kept = Literal["included", "left out", "elsewhere"]


class BackupFile(msgspec.Struct, frozen=True):
    """A file of a backup; `path` is relative, with slashes."""

    path: str
    size: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True):
    """Written last: a backup without it is not whole."""

    format: int
    skep: str
    #: Schema version of the store.
    schema: str
    center: str
    created_at: float
    #: sqlite, postgresql or mysql.
    store: str
    archive: Kept
    #: Where the archive is, for `elsewhere`.
    archive_url: str
    secrets: bool
    files: tuple[BackupFile, ...]

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


def read_manifest(folder: Path) -> Manifest:
    """Raises ConfigurationError for what is not a whole backup that this version can read."""
    path = folder / NAME
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigurationError(
            f"{folder} is not a whole backup: {NAME} cannot be read ({error.strerror}); it was cut "
            "short, or is not a backup"
        ) from error
    try:
        found = msgspec.json.decode(data, type=Manifest)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} is damaged or of another version: {error}") from error
    if found.format != FORMAT:
        raise ConfigurationError(
            f"{folder} has backup format {found.format}; this version reads {FORMAT}: upgrade Skep"
        )
    for file in found.files:
        check_path(file.path)
    return found


def check_path(path: str) -> None:
    """Raises ConfigurationError for a path that leads out of the backup."""
    parts = PurePosixPath(path).parts
    plain = all(part not in {"..", ".", ""} and "\0" not in part for part in parts)
    if not plain or len(parts) < 2 or parts[0] not in PARTS or path.startswith("/"):  # noqa: PLR2004
        raise ConfigurationError(f"the backup names a file outside of itself: {path!r}")


def digest_of_file(path: Path) -> str:
    """SHA-256, in hex."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def verify(folder: Path, manifest: Manifest, note: Note) -> None:
    """Raises ConfigurationError that names every file that is missing or changed."""
    wrong = []
    for number, file in enumerate(manifest.files, 1):
        if fault := _fault(folder, file):
            wrong.append(f"{file.path} {fault}")
        note(f"verified {number} of {len(manifest.files)} files")
    if wrong:
        more = f", and {len(wrong) - 3} more" if len(wrong) > 3 else ""  # noqa: PLR2004
        raise ConfigurationError(
            f"the backup {folder} is damaged, nothing was restored: {'; '.join(wrong[:3])}{more}"
        )


def _fault(folder: Path, file: BackupFile) -> str:
    path = folder / file.path
    if any(part.is_symlink() for part in (path, *path.relative_to(folder).parents)):
        return "is a symbolic link"
    if not path.is_file():
        return "is missing"
    if path.stat().st_size != file.size:
        return f"has {path.stat().st_size} bytes instead of {file.size}"
    return "" if digest_of_file(path) == file.sha256 else "was changed"


def files_below(folder: Path) -> Iterator[Path]:
    """Regular files, in order; links and sockets are passed over."""
    for place, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = Path(place, name)
            if path.is_file() and not path.is_symlink():
                yield path
