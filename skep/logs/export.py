"""Every line as JSON, one object a line: to a stream, or to a file that is rotated.

Runs where lines are stored or followed, in a thread: writing blocks. A line is written whole or
not at all; what cannot be written is counted and never stops the caller.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO, Protocol

import msgspec

from skep.model.logs import LogLine

_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
_OWNER_ONLY = 0o600


class LineExport(Protocol):
    """Takes lines in the order in which they arrived."""

    #: Lines that could not be written, since the start.
    failed: int

    def write(self, lines: Iterable[LogLine]) -> None:
        """Does not raise OSError."""


def json_lines(lines: Iterable[LogLine]) -> list[bytes]:
    """One object with a newline at its end, each."""
    return [msgspec.json.encode(line) + b"\n" for line in lines]


class StreamExport:
    """To an open binary stream, such as standard output."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.failed = 0

    def write(self, lines: Iterable[LogLine]) -> None:
        encoded = json_lines(lines)
        try:
            self._stream.write(b"".join(encoded))
            self._stream.flush()
        except OSError:
            self.failed += len(encoded)


class FileExport:
    """To `path`. With `limit` bytes it becomes `path.1`, that one `path.2`; `files` in all."""

    def __init__(self, path: Path, limit: int, files: int) -> None:
        self._path = path
        self._limit = limit
        self._files = files
        self.failed = 0

    def write(self, lines: Iterable[LogLine]) -> None:
        encoded = json_lines(lines)
        written = 0
        try:
            while written < len(encoded):
                written += self._append(encoded[written:])
        except OSError:
            self.failed += len(encoded) - written

    def _append(self, lines: list[bytes]) -> int:
        """Lines up to the limit of the file, at least one; how many."""
        size = self._path.stat().st_size if self._path.exists() else 0
        if size >= self._limit:
            self._rotate()
            size = 0
        count, end = 0, size
        while count < len(lines) and (count == 0 or end < self._limit):
            end += len(lines[count])
            count += 1
        self._write(b"".join(lines[:count]), size)
        return count

    def _write(self, data: bytes, size: int) -> None:
        file = os.open(self._path, _FLAGS, _OWNER_ONLY)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(file, view) :]
        except OSError:
            os.ftruncate(file, size)
            raise
        finally:
            os.close(file)

    def _rotate(self) -> None:
        names = [self._path, *(self._numbered(number) for number in range(1, self._files))]
        for old, new in reversed(list(pairwise(names))):
            if old.exists():
                old.replace(new)
        if len(names) == 1:
            self._path.unlink()

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")
