"""Packs a package into a file that agents can download. Run by centers only.

The same files give the same bytes, and so the same digest: sorted, with one time and one of
two modes. Links out of the folder are refused, nothing is ever executed, and nothing may
exceed the limit. Everything here blocks; call it in a thread.
"""

from __future__ import annotations

import os
import shutil
import stat
import zipfile
from collections.abc import Iterator
from email.parser import HeaderParser
from hashlib import sha256
from pathlib import Path

import msgspec

from skep.errors import InvalidInput
from skep.jobs.apps.package_source import check_wheel_name
from skep.jobs.definitions.jobs_folder import is_data_folder
from skep.store.ports.apps import Package

CHUNK = 2**20
#: The earliest time in a zip: the modification time of a file would change the digest.
_MOMENT = (1980, 1, 1, 0, 0, 0)
_PLAIN, _PROGRAM = 0o644, 0o755
#: Folders that are not part of a program.
LEFT_OUT = frozenset({".git", "__pycache__"})
_UNIX = 3
METADATA_BYTES = 2**20


class Packed(msgspec.Struct, frozen=True):
    """A package as a file on this machine."""

    path: Path
    package: Package


def pack_place(found: Path, limit: int, scratch: Path) -> Packed:
    """Write into `scratch`: a wheel or zip unchanged, a folder as a zip. Raises InvalidInput."""
    try:
        if found.is_dir():
            made = scratch / "package.zip"
            zip_folder(found, made, limit)
            return as_packed(made, "zip", "", limit)
        wheel = found.suffix == ".whl"
        if wheel:
            check_wheel_name(found.name)
        # Copy first, so that the file cannot change between digest and storage.
        made = _copied(found, scratch / "package.zip", limit)
        if wheel:
            _check_needs(made)
        return as_packed(made, "wheel" if wheel else "zip", found.name if wheel else "", limit)
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise InvalidInput(f"cannot pack the package: {error}") from error


def as_packed(path: Path, kind: str, name: str, limit: int) -> Packed:
    """A file that is already a package. Raises InvalidInput, and OSError."""
    size = path.stat().st_size
    if size > limit:
        raise _too_large(limit)
    if not zipfile.is_zipfile(path):
        raise InvalidInput("the package is not a zip file")
    digest = sha256()
    with path.open("rb") as file:
        while part := file.read(CHUNK):
            digest.update(part)
    return Packed(path, Package(digest.hexdigest(), kind, name, size))


def _check_needs(wheel: Path) -> None:
    """Raises InvalidInput: a requirement with a URL would be fetched from there, and built."""
    with zipfile.ZipFile(wheel) as archive:
        for entry in archive.infolist():
            if not entry.filename.endswith(".dist-info/METADATA"):
                continue
            with archive.open(entry) as file:
                text = file.read(METADATA_BYTES).decode("utf-8", "replace")
            for need in HeaderParser().parsestr(text).get_all("Requires-Dist", []):
                name, at, _ = need.partition(";")[0].partition("@")
                if at:
                    raise InvalidInput(
                        f"the wheel requires {name.strip()[:100]!r} from a URL; "
                        "require it by name and version"
                    )


def _copied(source: Path, into: Path, limit: int) -> Path:
    if source.stat().st_size > limit:
        raise _too_large(limit)
    return Path(shutil.copyfile(source, into))


def zip_folder(folder: Path, into: Path, limit: int) -> None:
    """Every file below the folder. Raises InvalidInput, and OSError."""
    seen = 0
    with zipfile.ZipFile(into, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, name in sorted(_files(folder, folder.resolve()), key=lambda pair: pair[1]):
            seen += path.stat().st_size
            if seen > limit:
                raise _too_large(limit)
            _add(archive, path, name)


def _add(archive: zipfile.ZipFile, path: Path, name: str) -> None:
    about = zipfile.ZipInfo(name, _MOMENT)
    about.create_system = _UNIX
    about.compress_type = zipfile.ZIP_DEFLATED
    runs = path.stat().st_mode & stat.S_IXUSR
    about.external_attr = (stat.S_IFREG | (_PROGRAM if runs else _PLAIN)) << 16
    with path.open("rb") as source, archive.open(about, "w") as target:
        while part := source.read(CHUNK):
            target.write(part)


def _files(folder: Path, root: Path) -> Iterator[tuple[Path, str]]:
    """(path, name in the package); a link counts as its target."""
    for here, folders, names in os.walk(folder):
        place = Path(here)
        for name in folders:
            if (place / name).is_symlink():
                raise InvalidInput(f"{_name(place / name, folder)} is a link to a folder")
        folders[:] = [name for name in folders if name not in LEFT_OUT]
        if is_data_folder(names):
            shown = _name(place, folder)
            raise InvalidInput(f"{shown} is the data folder of a center or an agent")
        for name in names:
            path = (place / name).resolve()
            shown = _name(place / name, folder)
            if not path.is_relative_to(root):
                raise InvalidInput(f"{shown} is a link out of the folder")
            if not path.is_file():
                raise InvalidInput(f"{shown} is not a file")
            yield path, shown


def _name(path: Path, folder: Path) -> str:
    return path.relative_to(folder).as_posix()


def _too_large(limit: int) -> InvalidInput:
    return InvalidInput(f"the package exceeds {limit} bytes, the limit of jobs.package_bytes")
