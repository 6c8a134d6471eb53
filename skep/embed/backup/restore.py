"""Restores a backup into an empty data folder and an empty database. Run by `skep restore`.

Every digest is checked before anything is written. A restore that fails removes what it wrote;
one that is killed leaves a mark, which prevents the start of a center.
"""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import tarfile
from collections import defaultdict
from pathlib import Path

from skep.archive.registry import folder_of, is_s3
from skep.archive.segments import writer_of
from skep.center.data_folder import UNFINISHED
from skep.embed.backup.manifest import (
    ARCHIVE,
    CENTER_NAME,
    DATA,
    NAME,
    STORE,
    Manifest,
    Note,
    check_path,
    read_manifest,
    verify,
)
from skep.embed.rebuild import hold_folder
from skep.errors import ConfigurationError, DiskFull
from skep.model.block import Held
from skep.runtime.clock import Clock
from skep.runtime.files import (
    UnreadableFile,
    make_private,
    read_line,
    sync_folder,
    write_durably,
)
from skep.settings import Settings
from skep.store.dump import FILES, check_empty, committed_segments, kind_of, load
from skep.store.open_store import known_schemas, open_store
from skep.store.ports import Store
from skep.store.restored_numbers import leave_gaps

LOCK = "center.lock"
_UNPACKED = ".restore"
#: Blocks that are returned per call.
BATCH = 500
REASON = "the store was restored from a backup"
#: A time, in seconds, after every other.
_EVER = 1e15


async def restore(settings: Settings, source: Path, clock: Clock, note: Note) -> Manifest:
    """Raises ConfigurationError, StoreDown or DiskFull, and leaves the folder empty."""
    folder = Path(settings.data)
    lock = await asyncio.to_thread(hold_folder, folder)
    try:
        await asyncio.to_thread(_check_folder, folder)
        try:
            return await _restore(settings, folder, source, clock, note)
        except BaseException:
            await asyncio.to_thread(_clear, folder)
            raise
    finally:
        os.close(lock)


async def _restore(
    settings: Settings, folder: Path, source: Path, clock: Clock, note: Note
) -> Manifest:
    found = await asyncio.to_thread(_put_back, settings, folder, source, note)
    try:
        await _make_ready(settings, clock, note)
    except BaseException:
        await asyncio.to_thread(_remove_segments, settings, found)
        raise
    await asyncio.to_thread(_cut_segments, settings, found)
    (folder / UNFINISHED).unlink()
    await asyncio.to_thread(sync_folder, folder)
    return found


async def _make_ready(settings: Settings, clock: Clock, note: Note) -> None:
    """Leased work waits again, no number is used a second time, and no session that ended after
    the backup is valid again."""
    note("giving back leased work")
    store = open_store(settings.store_url, settings.store)
    await store.open()
    try:
        await _give_back(store, clock)
        await store.sessions.forget(_EVER, _EVER)
    finally:
        await store.close()
    await asyncio.to_thread(leave_gaps, settings.store_url)


def _check_folder(folder: Path) -> None:
    make_private(folder)
    there = [path.name for path in folder.iterdir() if path.name != LOCK]
    if there:
        raise ConfigurationError(
            f"{folder} is not empty ({', '.join(sorted(there)[:3])}); restore into an empty folder"
        )


def _put_back(settings: Settings, folder: Path, source: Path, note: Note) -> Manifest:
    try:
        place = _unpacked(source, folder) if source.is_file() else source
        found = read_manifest(place)
        _check_fit(settings, found)
        _check_room(folder, found)
        verify(place, found, note)
        _check_archive(settings, found)
        _check_name(place, found)
        write_durably(folder / UNFINISHED, b"")
        try:
            _copy_all(settings, folder, place, found, note)
        except BaseException:
            _remove_segments(settings, found)
            raise
        shutil.rmtree(folder / _UNPACKED, ignore_errors=True)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise DiskFull(f"no space left in {folder}; nothing was restored") from error
        raise ConfigurationError(
            f"cannot restore: {error.filename or source}: {error.strerror}"
        ) from error
    return found


def _unpacked(source: Path, folder: Path) -> Path:
    """Unpacks a .tar file into the restored folder. Only regular files with plain names."""
    place = folder / _UNPACKED
    place.mkdir(mode=0o700)
    try:
        # Not compressed: it cannot unpack to more bytes than it has.
        with tarfile.open(source, "r:") as tar:
            for member in tar:
                _unpack(tar, member, place)
    except (tarfile.TarError, EOFError) as error:
        raise ConfigurationError(
            f"{source} is not a complete backup: it is not a .tar file of `skep backup`, or is "
            f"incomplete ({error})"
        ) from error
    return place


def _unpack(tar: tarfile.TarFile, member: tarfile.TarInfo, place: Path) -> None:
    if member.name != NAME:
        check_path(member.name)
    plain = member.isfile() and not member.issparse()
    data = tar.extractfile(member) if plain else None
    if data is None:
        raise ConfigurationError(f"the backup contains a non-file entry: {member.name!r}")
    target = place / member.name
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with data, open(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:  # noqa: PTH123
        shutil.copyfileobj(data, out, 2**20)


def _check_fit(settings: Settings, found: Manifest) -> None:
    kind = kind_of(settings.store_url)
    if found.schema not in known_schemas():
        raise ConfigurationError(
            f"the backup was made by Skep {found.skep} with schema {found.schema}, which this "
            "version does not support; upgrade Skep"
        )
    if found.store != kind:
        raise ConfigurationError(
            f"the backup contains a {found.store} store, but store.url names a {kind} store; set "
            "an empty database of that kind with --set store.url=URL"
        )
    check_empty(settings.store_url)


def _check_room(folder: Path, found: Manifest) -> None:
    free = shutil.disk_usage(folder).free
    if found.size > free:
        raise DiskFull(
            f"the backup needs {found.size // 2**20 + 1} MiB and {folder} has {free // 2**20} MiB "
            "free; nothing was restored"
        )


def _check_archive(settings: Settings, found: Manifest) -> None:
    """Existing segments belong to another center, or to the current state of this one."""
    if is_s3(settings.archive_url):
        if found.archive == "included":
            raise ConfigurationError(
                "the backup contains archive segments, but archive.url is a bucket; restore with "
                "--set archive.url=FOLDER, then upload them"
            )
        return
    there = folder_of(settings.archive_url)
    taken = [name for name in _segments(found) if (there / name).exists()]
    if taken:
        raise ConfigurationError(f"{there} has {taken[0]} already; restore into an empty archive")


def _segments(found: Manifest) -> list[str]:
    prefix = f"{ARCHIVE}/"
    return [f.path.removeprefix(prefix) for f in found.files if f.path.startswith(prefix)]


def _check_name(place: Path, found: Manifest) -> None:
    try:
        name = read_line(place / DATA / CENTER_NAME)
    except UnreadableFile as error:
        raise ConfigurationError(f"the backup is damaged: {error}") from error
    if name != found.center:
        raise ConfigurationError(
            f"the backup is of center {found.center} according to its manifest, but contains "
            "another name; it was put together from two backups"
        )


def _copy_all(settings: Settings, folder: Path, place: Path, found: Manifest, note: Note) -> None:
    """The store last: an earlier failure leaves the database empty."""
    for name in _segments(found):
        note(f"archive: {name}")
        _copy(place / ARCHIVE / name, folder_of(settings.archive_url) / name, 0o640)
    for file in found.files:
        if file.path.startswith(f"{DATA}/"):
            name = file.path.removeprefix(f"{DATA}/")
            # Without its archive the center gets a new name, so that its segments start anew.
            if name != CENTER_NAME or found.archive != "left out":
                _copy(place / file.path, folder / name, 0o600)
    note(f"loading the {found.store} store")
    load(settings.store_url, place / STORE / FILES[found.store])


def _remove_segments(settings: Settings, found: Manifest) -> None:
    """Removes the segments of the backup; none existed before."""
    for name in _segments(found):
        (folder_of(settings.archive_url) / name).unlink(missing_ok=True)


def _cut_segments(settings: Settings, found: Manifest) -> None:
    """The newest segment of a writer was copied after the store: bytes that the store does not
    know are cut off. Older segments without rows belong to the archive."""
    if not _segments(found):
        return
    folder, known = folder_of(settings.archive_url), committed_segments(settings.store_url)
    by_writer: dict[str, list[str]] = defaultdict(list)
    for name in sorted(_segments(found), reverse=True):
        by_writer[writer_of(name)].append(name)
    for names in by_writer.values():
        if known.keys().isdisjoint(names):
            continue
        for name in names:
            if name in known:
                _cut(folder / name, known[name])
                break
            (folder / name).unlink()


def _cut(path: Path, end: int) -> None:
    if path.stat().st_size > end:
        os.truncate(path, end)


def _copy(source: Path, target: Path, mode: int) -> None:
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with source.open("rb") as data, open(os.open(target, flags, mode), "wb") as out:  # noqa: PTH123
        shutil.copyfileobj(data, out, 2**20)
        out.flush()
        os.fsync(out.fileno())
    sync_folder(target.parent)


async def _give_back(store: Store, clock: Clock) -> None:
    """Agents that held work when the backup was made do not know this store."""
    while leased := await store.blocks.leased(BATCH):
        by_agent: dict[str, list[Held]] = defaultdict(list)
        for agent, held in leased:
            by_agent[agent].append(held)
        for agent, blocks in by_agent.items():
            await store.blocks.give_back(blocks, agent, clock.now(), REASON)


def _clear(folder: Path) -> None:
    """Empties the folder, which was empty before the restore."""
    for path in folder.iterdir():
        if path.name == LOCK:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
