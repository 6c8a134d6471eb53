"""Output of an instance that no center has yet: pieces in a folder, named by their offset.

Bounded: the oldest piece is deleted when the limit is reached. Not synced: a killed agent loses
nothing, a power cut can lose the last seconds. Blocking: agents call it in a thread.
"""

from __future__ import annotations

from pathlib import Path
from threading import Lock

#: Maximum bytes of one file, and of one call.
PIECE = 256 * 1024


class Spool:
    """Bytes from `first` to `end`; offsets count from the first byte ever written."""

    def __init__(self, folder: Path, bound: int) -> None:
        self._folder = folder
        self._bound = max(bound, 2 * PIECE)
        self._lock = Lock()
        #: Offset -> size, oldest first; the last one is being written.
        self._pieces: dict[int, int] = {}
        #: Everything before `first` was sent or dropped.
        self.first = 0
        self.end = 0

    def open(self) -> None:
        """Continue where an earlier process of the agent stopped."""
        self._folder.mkdir(parents=True, exist_ok=True)
        found = sorted(int(path.name) for path in self._folder.iterdir() if path.name.isdigit())
        self._pieces = {offset: self._path(offset).stat().st_size for offset in found}
        if not self._pieces:
            self._begin(0)
        self.first, self.end = found[0] if found else 0, self._size_up()

    def write(self, data: bytes) -> None:
        """Raises OSError on a disk error."""
        with self._lock:
            for start in range(0, len(data), PIECE):
                self._append(data[start : start + PIECE])
            while self.end - self.first > self._bound:
                self._remove(self.first)

    def _append(self, data: bytes) -> None:
        tail = self._tail()
        if self._pieces[tail] and self._pieces[tail] + len(data) > PIECE:
            tail = self._begin(self.end)
        with self._path(tail).open("ab") as file:
            file.write(data)
        self._pieces[tail] += len(data)
        self.end += len(data)

    def read(self, offset: int) -> tuple[int, bytes]:
        """(start, bytes of one piece), from `offset` or from the first remaining byte."""
        with self._lock:
            offset = max(offset, self.first)
            piece = max(start for start in self._pieces if start <= offset)
            with self._path(piece).open("rb") as file:
                file.seek(offset - piece)
                data = file.read(self._pieces[piece] - (offset - piece))
            return offset, data

    def let_go(self, offset: int) -> None:
        """A center has everything before this offset."""
        with self._lock:
            if offset > self.end or (offset == self.end and self._pieces[self._tail()]):
                # Beyond the end: a power cut lost bytes that had been sent already.
                self._begin(offset)
            for start in list(self._pieces)[:-1]:
                if start + self._pieces[start] <= offset:
                    self._remove(start)

    def _size_up(self) -> int:
        tail = self._tail()
        return tail + self._pieces[tail]

    def _tail(self) -> int:
        return next(reversed(self._pieces))

    def _begin(self, offset: int) -> int:
        self._path(offset).touch()
        self._pieces[offset] = 0
        self.end = offset
        return offset

    def _remove(self, offset: int) -> None:
        del self._pieces[offset]
        self.first = next(iter(self._pieces))
        self._path(offset).unlink(missing_ok=True)

    def _path(self, offset: int) -> Path:
        return self._folder / f"{offset:020d}"
