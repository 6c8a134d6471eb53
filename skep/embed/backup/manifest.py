"""The manifest of a backup: its contents, and their verification. Blocking."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Literal

import msgspec

from skep.archive.segments import is_segment
from skep.errors import ConfigurationError
from skep.store.dump import FILES

NAME = "manifest.json"
FORMAT = 1
STORE, DATA, ARCHIVE = "store", "data", "archive"
#: Folders of a backup.
PARTS = (STORE, DATA, ARCHIVE)
TOKENS = ("admin.token", "agent.token")
SECRETS = "secrets"
CENTER_NAME = "center.name"
#: Maximum bytes of a manifest, which has about 150 bytes per file.
MANIFEST_LIMIT = 64 * 2**20
_CHUNK = 2**20

Note = Callable[[str], None]
#: How the archive is included.
Kept = Literal["included", "left out", "elsewhere"]


class BackupFile(msgspec.Struct, frozen=True):
    """A file of a backup; `path` is relative, with slashes."""

    path: str
    size: int
    sha256: str


class _Head(msgspec.Struct, frozen=True):
    """The field that every format has."""

    format: int


class Manifest(msgspec.Struct, frozen=True):
    """Written last: a backup without it is incomplete."""

    format: int
    skep: str
    #: Schema version of the store.
    schema: str
    center: str
    created_at: float
    #: sqlite, postgresql or mysql.
    store: str
    archive: Kept
    #: Location of the archive, for `elsewhere`.
    archive_url: str
    secrets: bool
    files: tuple[BackupFile, ...]

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


def read_manifest(folder: Path) -> Manifest:
    """Raises ConfigurationError unless it is a complete backup that this version can read."""
    path = folder / NAME
    try:
        with path.open("rb") as file:
            data = file.read(MANIFEST_LIMIT + 1)
    except OSError as error:
        raise ConfigurationError(
            f"{folder} is not a complete backup: cannot read {NAME} ({error.strerror}); it was "
            "interrupted, or is not a backup"
        ) from error
    if len(data) > MANIFEST_LIMIT:
        raise ConfigurationError(f"{path} is larger than {MANIFEST_LIMIT // 2**20} MiB")
    found = _decoded(path, data)
    _check_files(path, found)
    return found


def _decoded(path: Path, data: bytes) -> Manifest:
    try:
        head = msgspec.json.decode(data, type=_Head)
        if head.format != FORMAT:
            raise ConfigurationError(
                f"{path.parent} has backup format {head.format}; this version supports {FORMAT}: "
                "upgrade Skep"
            )
        return msgspec.json.decode(data, type=Manifest)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigurationError(f"{path} is damaged: {error}") from error


def _check_files(path: Path, found: Manifest) -> None:
    names = [file.path for file in found.files]
    for name in names:
        check_path(name)
    if len({*names}) < len(names):
        raise ConfigurationError(f"{path} is damaged: it lists a file twice")
    if f"{STORE}/{FILES.get(found.store)}" not in names:
        raise ConfigurationError(f"{path} is damaged: it lists no {found.store} store")
    if f"{DATA}/{CENTER_NAME}" not in names:
        raise ConfigurationError(f"{path} is damaged: it lists no {CENTER_NAME}")


def check_path(path: str) -> None:
    """Raises ConfigurationError for a path outside of the backup."""
    parts = PurePosixPath(path).parts
    plain = all(part not in {"..", ".", ""} and "\0" not in part for part in parts)
    if not plain or len(parts) < 2 or parts[0] not in PARTS or path != "/".join(parts):  # noqa: PLR2004
        raise ConfigurationError(f"the backup lists a file outside of itself: {path!r}")
    if not _belongs(*parts):
        raise ConfigurationError(f"the backup lists an unexpected file: {path!r}")


def _belongs(part: str, name: str, *below: str) -> bool:
    """Whether `skep backup` creates such a file."""
    if part == DATA:
        return name == SECRETS if below else name in {CENTER_NAME, *TOKENS}
    return not below and (name in FILES.values() if part == STORE else is_segment(name))


def digest_of_file(path: Path) -> str:
    """SHA-256, in hex."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def verify(folder: Path, manifest: Manifest, note: Note) -> None:
    """Raises ConfigurationError, which names files that are missing or changed."""
    wrong = []
    for number, file in enumerate(manifest.files, 1):
        if fault := _damage(folder, file):
            wrong.append(f"{file.path} {fault}")
        note(f"verified {number} of {len(manifest.files)} files")
    if wrong:
        more = f", and {len(wrong) - 3} more" if len(wrong) > 3 else ""  # noqa: PLR2004
        raise ConfigurationError(
            f"the backup {folder} is damaged, nothing was restored: {'; '.join(wrong[:3])}{more}"
        )


def _damage(folder: Path, file: BackupFile) -> str:
    path = folder / file.path
    inside = [folder / part for part in PurePosixPath(file.path).parents if part.name]
    if any(part.is_symlink() for part in (path, *inside)):
        return "is a symbolic link"
    if not path.is_file():
        return "is missing"
    if path.stat().st_size != file.size:
        return f"has {path.stat().st_size} bytes instead of {file.size}"
    return "" if digest_of_file(path) == file.sha256 else "was changed"


def files_below(folder: Path) -> Iterator[Path]:
    """Regular files, in order; links and sockets are skipped."""
    for place, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            path = Path(place, name)
            if path.is_file() and not path.is_symlink():
                yield path
