"""Creates a backup while the center runs. Blocking; run by `skep backup`.

Everything is written under a name that ends in `.partial`, and renamed when its manifest is on
disk: leftovers of a killed backup never look complete.
"""

from __future__ import annotations

import errno
import os
import shutil
import tarfile
from pathlib import Path

import msgspec

from skep import __version__
from skep.archive.registry import folder_of, is_s3
from skep.archive.segments import closed_segments, newest_segments
from skep.embed.backup.manifest import (
    ARCHIVE,
    CENTER_NAME,
    DATA,
    FORMAT,
    NAME,
    SECRETS,
    STORE,
    TOKENS,
    BackupFile,
    Kept,
    Manifest,
    Note,
    digest_of_file,
    files_below,
)
from skep.errors import ConfigurationError, DiskFull
from skep.runtime.clock import Clock
from skep.runtime.files import UnreadableFile, read_line, sync_folder, write_durably
from skep.settings import Settings
from skep.store.dump import FILES, committed_segments, dump, kind_of, schema_of

PARTIAL = ".partial"
TAR = ".tar"
#: Marks the folder of an unfinished backup: only such a folder is removed by the next one.
_MARK = ".skep-backup"
_CHUNK = 2**20


def back_up(
    settings: Settings,
    target: Path,
    clock: Clock,
    note: Note,
    *,
    archive: bool = True,
    secrets: bool = True,
) -> Manifest:
    """Raises ConfigurationError, StoreDown or DiskFull, and then leaves no files."""
    center = _center(Path(settings.data))
    _check_target(target, Path(settings.data))
    partial = target.with_name(f"{target.name}{PARTIAL}")
    _begin(partial)
    try:
        made = _fill(settings, center, partial, clock, note, archive=archive, secrets=secrets)
        _finish(partial, target, note)
    except OSError as error:
        _discard(partial)
        if error.errno == errno.ENOSPC:
            raise DiskFull(
                f"no space left for the backup {target}; it was removed: free some space or "
                "choose another disk"
            ) from error
        raise ConfigurationError(
            f"cannot write the backup {target}: {error.filename or ''} {error.strerror}"
        ) from error
    except BaseException:
        _discard(partial)
        raise
    return made


def _center(data: Path) -> str:
    try:
        return read_line(data / CENTER_NAME)
    except UnreadableFile as error:
        raise ConfigurationError(
            f"{data} is not the data folder of a center: {error}; set the folder with --data"
        ) from error


def _check_target(target: Path, data: Path) -> None:
    if target.exists():
        raise ConfigurationError(f"{target} exists; choose a name that does not exist")
    if not target.absolute().parent.is_dir():
        raise ConfigurationError(f"the folder {target.absolute().parent} does not exist")
    if target.resolve().is_relative_to(data.resolve()):
        raise ConfigurationError(f"{target} is inside the data folder; choose another place")


def _begin(partial: Path) -> None:
    if partial.exists():
        if not any((partial / name).exists() for name in (_MARK, NAME)):
            raise ConfigurationError(f"{partial} exists and is not a backup; move it away")
        shutil.rmtree(partial)  # left by a killed backup
    partial.mkdir(mode=0o700)
    (partial / _MARK).touch()
    for part in (STORE, DATA, ARCHIVE):
        (partial / part).mkdir(mode=0o700)


def _fill(
    settings: Settings,
    center: str,
    partial: Path,
    clock: Clock,
    note: Note,
    *,
    archive: bool,
    secrets: bool,
) -> Manifest:
    """Closed segments first: segments that retention deletes meanwhile are then included."""
    url, now = settings.store_url, clock.now()
    elsewhere = is_s3(settings.archive_url)
    segments = None if elsewhere or not archive else folder_of(settings.archive_url)
    if segments is not None:
        _keep_closed(segments, partial / ARCHIVE, note)
    kind = kind_of(url)
    note(f"copying the {kind} store")
    dump(url, partial / STORE / FILES[kind])
    if segments is not None:
        # In this order: a segment that is closed between the two steps is copied by the first.
        _keep_newest(segments, partial / ARCHIVE, committed_segments(url))
        _keep_closed(segments, partial / ARCHIVE, note)
    _keep_data(Path(settings.data), partial / DATA, secrets=secrets)
    how: Kept = "elsewhere" if elsewhere else "included" if archive else "left out"
    place = settings.archive_url if elsewhere else ""
    schema, files = schema_of(url), _listed(partial, note)
    made = Manifest(FORMAT, __version__, schema, center, now, kind, how, place, secrets, files)
    write_durably(partial / NAME, msgspec.json.format(msgspec.json.encode(made), indent=1))
    return made


def _keep_closed(folder: Path, target: Path, note: Note) -> None:
    """Hard links if both are on one disk, else copies: these segments never change again."""
    for path in closed_segments(folder):
        kept = target / path.name
        if kept.exists():
            continue
        try:
            _link_or_copy(path, kept)
        except FileNotFoundError:  # retention was faster
            continue
        note(f"archive: {path.name}")


def _link_or_copy(path: Path, kept: Path) -> None:
    try:
        os.link(path, kept)
    except FileNotFoundError:
        raise
    except OSError:
        _copy(path, kept, path.stat().st_size)


def _keep_newest(folder: Path, target: Path, committed: dict[str, int]) -> None:
    """Copies the bytes that the store knows; later bytes belong to a later backup."""
    for path in newest_segments(folder):
        if (end := committed.get(path.name, 0)) and not (target / path.name).exists():
            _copy(path, target / path.name, end)


def _keep_data(folder: Path, target: Path, *, secrets: bool) -> None:
    names = [CENTER_NAME, *(TOKENS if secrets else ())]
    for name in names:
        if (folder / name).exists():
            write_durably(target / name, (folder / name).read_bytes())
    if not secrets:
        return
    for path in files_below(folder / SECRETS):
        kept = target / path.relative_to(folder)
        kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_durably(kept, path.read_bytes())


def _copy(source: Path, target: Path, size: int) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with source.open("rb") as data, open(os.open(target, flags, 0o600), "wb") as out:  # noqa: PTH123
        while size > 0 and (chunk := data.read(min(size, _CHUNK))):
            out.write(chunk)
            size -= len(chunk)
        out.flush()
        os.fsync(out.fileno())
    if size:
        raise ConfigurationError(f"{source} is shorter than the store expects; run `skep doctor`")


def _listed(partial: Path, note: Note) -> tuple[BackupFile, ...]:
    """Lists the files with digests. Hard-linked segments keep their mode."""
    listed = []
    for path in files_below(partial):
        if path.name == _MARK:
            continue
        name = path.relative_to(partial).as_posix()
        note(f"digest of {name}")
        listed.append(BackupFile(name, path.stat().st_size, digest_of_file(path)))
        with path.open("rb") as file:
            os.fsync(file.fileno())
    return tuple(listed)


def _finish(partial: Path, target: Path, note: Note) -> None:
    (partial / _MARK).unlink()
    if target.suffix == TAR:
        note(f"writing {target}")
        (partial / _MARK).touch()
        packed = partial / "packed.tar"
        with open(os.open(packed, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:  # noqa: PTH123
            with tarfile.open(fileobj=out, mode="w") as tar:
                _add_all(tar, partial)
            out.flush()
            os.fsync(out.fileno())
        packed.rename(target)
        sync_folder(target.absolute().parent)
        shutil.rmtree(partial)
        return
    for place, _, _ in os.walk(partial):
        sync_folder(Path(place))
    partial.rename(target)
    sync_folder(target.absolute().parent)


def _add_all(tar: tarfile.TarFile, partial: Path) -> None:
    """The manifest last: an incomplete file has none."""
    names = [path.relative_to(partial).as_posix() for path in files_below(partial)]
    kept = [name for name in names if name not in {NAME, _MARK, "packed.tar"}]
    for name in (*kept, NAME):
        tar.add(partial / name, name, recursive=False)


def _discard(partial: Path) -> None:
    shutil.rmtree(partial, ignore_errors=True)
