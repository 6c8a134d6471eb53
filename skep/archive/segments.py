"""The segment files of one writer: blocking code, run by the archive's thread on centers.

A segment is `<writer>-<number>.warc.zst` and starts with a warcinfo record. It is created under
another name and renamed when it is complete, so a segment without its first record never exists.
Bytes of a failed write are cut off before the next one; records that the store does not know at a
start are set aside in a segment of their own, never deleted.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from threading import Lock

from skep import __version__
from skep.archive.frame_boundaries import frame_end
from skep.archive.frames import FrameMaker
from skep.archive.ports import RecordLocation, SetAside
from skep.archive.segment_scan import whole_frames
from skep.errors import ArchiveDown, ConfigurationError, DiskFull, Malformed, Unavailable
from skep.runtime.files import sync_folder

SUFFIX = ".warc.zst"
#: Suffix of segments with records that were set aside, because the store does not know them.
_UNKNOWN = ".unknown"
_WRITER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SEGMENT = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,63})-([0-9]{8})\.warc\.zst")
#: Errors of a full or limited volume, which can pass without a restart.
_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
#: Bytes that are read to find the end of a warcinfo record of a few hundred bytes.
_FIRST_FRAME = 64 * 1024
_FILE_MODE = 0o640


def is_segment(name: str) -> bool:
    """Whether it is a plain segment name: no separators, no leading dots."""
    return _SEGMENT.fullmatch(name) is not None


def is_writer(name: str) -> bool:
    """Whether it can be the prefix of a segment name."""
    return _WRITER.fullmatch(name) is not None


def writer_of(name: str) -> str:
    """The writer of a segment; "" for other files."""
    found = _SEGMENT.fullmatch(name)
    return found[1] if found else ""


def writers_in(folder: Path) -> list[str]:
    """The writers with segments in a folder; none when there is no such folder."""
    if not folder.is_dir():
        return []
    matches = (_SEGMENT.fullmatch(path.name) for path in folder.iterdir())
    return sorted({match[1] for match in matches if match})


def check_writer(name: str) -> None:
    """Raises ConfigurationError for a name that cannot be the prefix of a file name."""
    if not is_writer(name):
        raise ConfigurationError(
            f"{name!r} is not a valid archive writer: use letters, digits, '.', '_', '-'."
        )


def empty_store(writer: str, segments: int, place: str) -> ConfigurationError:
    """The error for a center whose store was lost, or is not the right one."""
    return ConfigurationError(
        f"the store is empty, but {place} holds {segments} archive segments of this center "
        f"({writer}): is store.url right? Restore a backup (`skep restore`), or create rows from "
        "the archive (`skep archive rebuild`); to start empty all the same, set "
        "archive.allow_empty_store"
    )


def segment_name(writer: str, number: int) -> str:
    return f"{writer}-{number:08d}{SUFFIX}"


def segments_of(folder: Path, writer: str) -> list[int]:
    """The numbers of a writer's segments, oldest first."""
    matches = (_SEGMENT.fullmatch(path.name) for path in folder.iterdir())
    return sorted(int(match[2]) for match in matches if match and match[1] == writer)


def newest_segments(folder: Path) -> list[Path]:
    """The newest segment of each writer, which can still grow. Those set aside never grow."""
    return [
        folder / segment_name(writer, segments_of(folder, writer)[-1])
        for writer in writers_in(folder)
        if not writer.endswith(_UNKNOWN)
    ]


def closed_segments(folder: Path) -> list[Path]:
    """Segments that never change again."""
    if not folder.is_dir():
        return []
    open_ones = set(newest_segments(folder))
    found = (path for path in folder.iterdir() if is_segment(path.name))
    return sorted(path for path in found if path not in open_ones)


def delete_segment(folder: Path, name: str, me: str) -> int | None:
    """The bytes that were freed; None when it must stay, or when another center decides."""
    found = _SEGMENT.fullmatch(name)
    if found is None:
        return None
    numbers = segments_of(folder, found[1])
    if int(found[2]) not in numbers:
        return 0 if found[1] == me else None
    if int(found[2]) == numbers[-1]:
        return None
    path = folder / name
    size = path.stat().st_size
    path.unlink()
    sync_folder(folder)
    return size


class SegmentWriter:
    """Appends to the newest segment of one writer, and starts the next one."""

    def __init__(self, folder: Path, writer: str, segment_bytes: int, maker: FrameMaker) -> None:
        check_writer(writer)
        self._folder = folder
        self._writer = writer
        self._segment_bytes = segment_bytes
        self._maker = maker
        self._lock = -1
        self._file = -1
        #: One thread appends; others can call `check`.
        self._mutex = Lock()
        #: Device and inode of the folder that was opened.
        self._place: tuple[int, int] | None = None
        self._number = 0
        self._end = 0
        #: There may be bytes of a failed write after `_end`.
        self._torn = False
        #: The next append starts a new segment, because there is none or its sync failed.
        self._spent = True

    def lock(self) -> None:
        """Lock these segments for this process; raises ConfigurationError."""
        path = self._folder / f"{self._writer}.lock"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._place = _identity(self._folder.stat())
            self._lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _FILE_MODE)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self.close()
            raise ConfigurationError(
                f"another process writes to {path.with_suffix('')}*; stop it, or give this "
                "center its own name."
            ) from error
        except OSError as error:
            self.close()
            raise ConfigurationError(
                f"cannot use the archive folder {self._folder}: {error.strerror}"
            ) from error

    def newest(self) -> tuple[str, str]:
        """(the newest segment or "", the name of the next one)."""
        numbers = segments_of(self._folder, self._writer)
        self._number = numbers[-1] if numbers else 0
        name = segment_name(self._writer, self._number) if numbers else ""
        return name, segment_name(self._writer, self._number + 1)

    def resume(self, name: str, committed: int) -> SetAside | None:
        """Continue the newest segment after the committed bytes. Complete records after them are
        first set aside in a segment of their own; an incomplete last one is cut off."""
        path = self._folder / name
        self._file = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        size = os.fstat(self._file).st_size
        if committed > size:
            raise ConfigurationError(
                f"{path} has {size} bytes, but {committed} were committed: it was truncated or "
                "replaced. Restore it from a backup before you start this center."
            )
        self._end = max(committed, self._end_of_first_frame(path))
        kept = set_aside(self._folder, name, self._end, self._maker) if size > self._end else None
        self._cut()
        self._spent = False
        return kept

    def numbers(self) -> list[int]:
        """The numbers of this writer's segments, oldest first."""
        return segments_of(self._folder, self._writer)

    def size_of(self, name: str) -> int:
        return (self._folder / name).stat().st_size

    def _end_of_first_frame(self, path: Path) -> int:
        try:
            return frame_end(os.pread(self._file, _FIRST_FRAME, 0))
        except Malformed as error:
            raise ConfigurationError(
                f"{path} does not start with a complete record: it is damaged. Restore it "
                "from a backup, or move it away, before you start this center."
            ) from error

    def append(self, blobs: Sequence[bytes]) -> list[RecordLocation]:
        """Write and sync all; raises DiskFull or ArchiveDown, and then keeps nothing."""
        with self._mutex:
            return self._append(blobs)

    def _append(self, blobs: Sequence[bytes]) -> list[RecordLocation]:
        self._check()
        try:
            self._make_ready()
            self._write(b"".join(blobs))
        except OSError as error:
            raise self._explained(error) from error
        self._torn = True  # until the write is known to be complete
        self._check()
        self._torn = False
        name = segment_name(self._writer, self._number)
        starts = accumulate(map(len, blobs), initial=self._end)
        places = [RecordLocation(name, start) for start, _ in zip(starts, blobs, strict=False)]
        self._end += sum(map(len, blobs))
        return places

    def check(self) -> None:
        """Raises ArchiveDown when the folder or its newest segment was deleted, moved,
        unmounted or made read-only since it was opened."""
        with self._mutex:
            self._check()

    def _check(self) -> None:
        try:
            self._compare()
        except OSError as error:
            raise ArchiveDown(
                f"the archive folder {self._folder} is gone ({error.filename}: {error.strerror}); "
                "mount it or move it back; the center then continues automatically"
            ) from error

    def _compare(self) -> None:
        if self._place is not None and _identity(self._folder.stat()) != self._place:
            raise ArchiveDown(
                f"the archive folder {self._folder} is not the one that was opened; mount or move "
                "the right one back, or restart the center to use this one"
            )
        if not os.access(self._folder, os.W_OK):
            raise ArchiveDown(f"the archive folder {self._folder} is read-only")
        if self._file < 0:
            return
        path = self._folder / segment_name(self._writer, self._number)
        mine = os.fstat(self._file)
        if not mine.st_nlink or _identity(path.stat()) != _identity(mine):
            raise ArchiveDown(
                f"the archive segment {path} was deleted or replaced; move it back, or restore it "
                "and restart the center"
            )

    def _make_ready(self) -> None:
        if self._torn:
            self._cut()
        if self._spent or self._end >= self._segment_bytes:
            self._begin_next()

    def _write(self, data: bytes) -> None:
        self._torn = True
        try:
            _write_all(self._file, data, self._end)
            self._sync()
        except OSError:
            with suppress(OSError):  # it is retried before the next write
                self._cut()
            raise
        self._torn = False

    def _sync(self) -> None:
        """After a failed sync the kernel may have dropped pages without reporting it at the next
        sync, so the segment is closed; its earlier bytes were synced already."""
        try:
            _fdatasync(self._file)
        except OSError:
            self._spent = True
            raise

    def _cut(self) -> None:
        os.ftruncate(self._file, self._end)
        os.fsync(self._file)
        self._torn = False

    def _begin_next(self) -> None:
        name = segment_name(self._writer, self._number + 1)
        first = self._maker.warcinfo_frame(name, f"Skep/{__version__}")
        file = new_segment(self._folder, name, [first])
        if self._file >= 0:
            os.close(self._file)
        self._file, self._number, self._end = file, self._number + 1, len(first)
        self._spent = False

    def _explained(self, error: OSError) -> Unavailable:
        if error.errno in _NO_SPACE:
            return DiskFull(
                f"the archive at {self._folder} cannot grow ({error.strerror}): free some space; "
                "it then continues automatically."
            )
        return ArchiveDown(f"cannot write to the archive at {self._folder}: {error.strerror}")

    def close(self) -> None:
        """Release the files and the lock; can be called twice."""
        for file in (self._file, self._lock):
            if file >= 0:
                os.close(file)
        self._file = self._lock = -1
        self._place = None
        self._torn, self._spent = False, True


def new_segment(folder: Path, name: str, pieces: Iterable[bytes]) -> int:
    """An open file, complete and synced under its name; on OSError there is no file."""
    unfinished = folder / f"{name}.new"
    flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    file = os.open(unfinished, flags, _FILE_MODE)
    try:
        end = 0
        for piece in pieces:
            _write_all(file, piece, end)
            end += len(piece)
        os.fsync(file)
        unfinished.rename(folder / name)
        sync_folder(folder)
    except OSError:
        os.close(file)
        with suppress(OSError):
            unfinished.unlink()
        raise
    return file


def set_aside(folder: Path, name: str, start: int, maker: FrameMaker) -> SetAside | None:
    """Copy the complete records after `start` into a closed segment; None when there are none.

    Its name starts with that of the segment, and is one that no writer will ever use.
    """
    whole = [*whole_frames(folder / name, start)]
    if not whole:
        return None
    writer = f"{name.removesuffix(SUFFIX)}{_UNKNOWN}"
    number = max(segments_of(folder, writer), default=0) + 1
    kept = segment_name(writer, number)
    first = maker.warcinfo_frame(kept, f"Skep/{__version__}")
    os.close(new_segment(folder, kept, _with_frames(folder / name, first, whole)))
    return SetAside(kept, sum(end - begin for begin, end in whole))


def _with_frames(path: Path, first: bytes, frames: Iterable[tuple[int, int]]) -> Iterator[bytes]:
    yield first
    with path.open("rb") as source:
        for begin, end in frames:
            source.seek(begin)
            yield source.read(end - begin)


def _identity(about: os.stat_result) -> tuple[int, int]:
    return about.st_dev, about.st_ino


def _write_all(file: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(file, view, offset)
        view, offset = view[written:], offset + written


def _fdatasync(file: int) -> None:
    """fdatasync where available: it syncs the length, and the times need no sync."""
    getattr(os, "fdatasync", os.fsync)(file)
