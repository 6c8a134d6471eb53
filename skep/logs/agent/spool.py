"""Lines of one source under one token that no center has stored yet: append-only files.

Runs on agents, in a thread: everything blocks. A line that was appended survives `kill -9`; a
line is synced before it is handed out, so that after a power cut no offset that a center has seen
is given to another line. When the budget is spent the oldest file is dropped and its lines are
counted; the center sees the gap in the offsets and writes the line that names it.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from skep.model.logs import LogBatch, LogSource
from skep.runtime.files import sync_folder

#: Length and CRC-32 of what follows.
_HEAD = struct.Struct(">II")
#: Keeps zeros, which a power cut may leave at the end of a file, from being read as a line.
_SEED = 1
#: Files of one budget; one of them is dropped at a time.
_FILES = 8
_SMALLEST_FILE, _LARGEST_FILE = 4096, 2**20
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
_OWNER_ONLY = 0o600


@dataclass(slots=True)
class _Segment:
    """One file: `count` lines from offset `first`."""

    path: Path
    first: int
    count: int = 0
    size: int = 0

    @property
    def end(self) -> int:
        return self.first + self.count


class Spool:
    """Lines from `first` up to, and without, `next`. Call `open` first."""

    def __init__(self, folder: Path, source: LogSource, token: int, budget: int) -> None:
        self.source = source
        self.token = token
        self._folder = folder
        self._budget = max(budget, 2 * _SMALLEST_FILE)
        self._file_bytes = min(max(self._budget // _FILES, _SMALLEST_FILE), _LARGEST_FILE)
        self._lock = Lock()
        self._segments: list[_Segment] = []
        self._file: int | None = None
        self._synced = True
        self._acknowledged = 0
        self.next = 0
        #: Lines that were dropped before a center had stored them, since the start.
        self.dropped = 0
        #: Files whose end was torn, since the start.
        self.torn = 0

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(segment.size for segment in self._segments)

    @property
    def waiting(self) -> int:
        """Lines that no center has stored, as far as is known."""
        return sum(max(0, one.end - max(one.first, self._acknowledged)) for one in self._segments)

    def open(self) -> None:
        """Continue with what an earlier process left. A torn end is cut off."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        names = sorted(path for path in self._folder.iterdir() if path.name.isdigit())
        with self._lock:
            for path in names:
                self._adopt(path)
            self.next = max(self.next, self._segments[-1].end if self._segments else 0)

    def _adopt(self, path: Path) -> None:
        data = path.read_bytes()
        lines = list(_records(data))
        size = sum(_HEAD.size + len(line) for line in lines)
        if size < len(data):
            self.torn += 1
            os.truncate(path, size)
        self._segments.append(_Segment(path, int(path.name), len(lines), size))

    def append(self, lines: Sequence[bytes]) -> None:
        """Append these lines. Lines that cannot be written are dropped and counted, and OSError is
        raised: their offsets stay unused, so that the center sees how many there were."""
        with self._lock:
            end = self.next + len(lines)
            try:
                for chunk in _chunks(lines, self._file_bytes):
                    self._write(chunk)
                    self._keep_budget()
            except OSError:
                self._skip(end - self.next)
                raise

    def _write(self, lines: Sequence[bytes]) -> None:
        segment = self._current()
        data = b"".join(_HEAD.pack(len(line), zlib.crc32(line, _SEED)) + line for line in lines)
        file = self._opened(segment)
        try:
            _write_all(file, data)
        except OSError:
            os.ftruncate(file, segment.size)
            raise
        segment.count += len(lines)
        segment.size += len(data)
        self._synced = False
        self.next = segment.end

    def _current(self) -> _Segment:
        """The file to append to; a new one when the last is full or offsets were skipped."""
        last = self._segments[-1] if self._segments else None
        if last is not None and last.size < self._file_bytes and last.end == self.next:
            return last
        self._sync()
        self._close()
        self._segments.append(_Segment(self._folder / f"{self.next:020d}", self.next))
        return self._segments[-1]

    def _opened(self, segment: _Segment) -> int:
        if self._file is None:
            self._file = os.open(segment.path, _FLAGS, _OWNER_ONLY)
        return self._file

    def _skip(self, count: int) -> None:
        self.next += count
        self.dropped += count

    def _keep_budget(self) -> None:
        while self.size > self._budget and len(self._segments) > 1:
            self._drop_oldest()

    def drop_oldest(self) -> bool:
        """Delete the oldest file to make room for other sources; returns whether there was one."""
        with self._lock:
            if len(self._segments) > 1:
                self._drop_oldest()
                return True
            return False

    def _drop_oldest(self) -> None:
        oldest = self._segments[0]
        self.dropped += max(0, oldest.end - max(oldest.first, self._acknowledged))
        self._remove(oldest)

    def _remove(self, segment: _Segment) -> None:
        self._segments.remove(segment)
        segment.path.unlink(missing_ok=True)

    def batch(self, limit: int) -> LogBatch | None:
        """The oldest lines that wait, up to `limit` bytes and at least one; None without any.
        They are synced first, and stay until they are acknowledged."""
        with self._lock:
            self._sync()
            for segment in self._segments:
                if segment.count and segment.end > self._acknowledged:
                    return self._batch_of(segment, limit)
            return None

    def _batch_of(self, segment: _Segment, limit: int) -> LogBatch:
        first = max(segment.first, self._acknowledged)
        taken: list[bytes] = []
        size = 0
        for line in list(_records(segment.path.read_bytes()))[first - segment.first :]:
            size += len(line) + 1
            if taken and size > limit:
                break
            taken.append(line)
        return LogBatch(self.source, self.token, first, b"\n".join(taken))

    def acknowledge(self, offset: int) -> None:
        """A center has stored every line before `offset`, or knows that it was dropped."""
        with self._lock:
            self._acknowledged = max(self._acknowledged, offset)
            # Beyond the end: an earlier process with the same token has sent more.
            self.next = max(self.next, offset)
            for segment in self._segments[:-1]:
                if segment.end <= self._acknowledged:
                    self._remove(segment)

    def _sync(self) -> None:
        if not self._synced and self._file is not None:
            os.fsync(self._file)
            sync_folder(self._folder)
        self._synced = True

    def _close(self) -> None:
        if self._file is not None:
            os.close(self._file)
        self._file = None

    def close(self) -> None:
        """Sync and close; what waits stays on disk."""
        with self._lock:
            self._sync()
            self._close()

    def delete(self) -> None:
        """Remove everything, the folder too."""
        with self._lock:
            self._close()
            for path in self._folder.iterdir():
                path.unlink()
            self._folder.rmdir()
            self._segments = []


def _write_all(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def _chunks(lines: Sequence[bytes], size: int) -> Iterator[Sequence[bytes]]:
    """Lines in groups of at most `size` bytes and at least one line."""
    start = taken = 0
    for number, line in enumerate(lines):
        if taken and taken + len(line) > size:
            yield lines[start:number]
            start, taken = number, 0
        taken += len(line) + _HEAD.size
    if start < len(lines):
        yield lines[start:]


def _records(data: bytes) -> Iterator[bytes]:
    """The lines of a file up to the first that is not whole."""
    at = 0
    while at + _HEAD.size <= len(data):
        length, checksum = _HEAD.unpack_from(data, at)
        line = data[at + _HEAD.size : at + _HEAD.size + length]
        if len(line) < length or zlib.crc32(line, _SEED) != checksum:
            return
        yield line
        at += _HEAD.size + length
