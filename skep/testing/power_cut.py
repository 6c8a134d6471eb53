"""A disk for SQLite that loses data without a sync, and a database driver for it.

apsw can run SQLite on our own file system; Python's own module cannot. The adapter below implements
as much of a database driver as SQLAlchemy needs, so that the store under test is the real one: its
statements, its PRAGMAs, its group commit.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import apsw

SECTOR = 512


@dataclass
class Image:
    """The files after a cut, and what was acknowledged before it."""

    files: dict[str, bytes]
    acknowledged: set[str]


@dataclass
class _File:
    #: The synced bytes, and the writes since, in order.
    safe: bytearray = field(default_factory=bytearray)
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)

    def sync(self) -> None:
        for change in self.pending:
            _apply(self.safe, change)
        self.pending.clear()

    def after_cut(self, rng: Random) -> bytes:
        """The synced bytes and any part of the others, by sector, in any order."""
        left = bytearray(self.safe)
        for offset, data in self.pending:
            if data is None:
                if rng.random() < 0.5:
                    _apply(left, (offset, None))
                continue
            for start in range(0, len(data), SECTOR):
                if rng.random() < 0.5:
                    _apply(left, (offset + start, data[start : start + SECTOR]))
        return bytes(left)


def _apply(content: bytearray, change: tuple[int, bytes | None]) -> None:
    offset, data = change
    if data is None:
        del content[offset:]
        return
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(data)] = data


class Disk:
    """All files of one database; the power fails at random, and an image remains."""

    def __init__(self, rng: Random, chance: float) -> None:
        self._rng = rng
        self._chance = chance
        self._files: dict[str, _File] = {}
        self._lock = threading.Lock()
        self.acknowledged: set[str] = set()
        self.images: list[Image] = []
        self.syncs = 0

    def write(self, name: str, offset: int, data: bytes | None) -> None:
        with self._lock:
            self._files.setdefault(name, _File()).pending.append((offset, data))
            self._maybe_cut()

    def sync(self, name: str) -> None:
        with self._lock:
            self._maybe_cut()
            self._files.setdefault(name, _File()).sync()
            self.syncs += 1
            self._maybe_cut()

    def delete(self, name: str) -> None:
        with self._lock:
            self._files.pop(name, None)

    def cut(self) -> None:
        """Cut the power now."""
        with self._lock:
            self._cut()

    def _maybe_cut(self) -> None:
        if self._rng.random() < self._chance:
            self._cut()

    def _cut(self) -> None:
        # Count acknowledgements first: later ones do not count.
        told = set(self.acknowledged)
        files = {name: file.after_cut(self._rng) for name, file in self._files.items()}
        self.images.append(Image(files, told))


class _TrackedFile(apsw.VFSFile):
    def __init__(self, disk: Disk, name: Any, flags: list[int]) -> None:
        super().__init__("", name, flags)
        filename = name.filename() if isinstance(name, apsw.URIFilename) else str(name)
        self._disk, self._name = disk, filename.rpartition("/")[2]

    def xWrite(self, data: Any, offset: int) -> None:  # noqa: N802 - SQLite's name
        super().xWrite(data, offset)
        self._disk.write(self._name, offset, bytes(data))

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        super().xTruncate(newsize)
        self._disk.write(self._name, newsize, None)

    def xSync(self, flags: int) -> None:  # noqa: ARG002, N802 - SQLite's; all files are treated alike
        self._disk.sync(self._name)


class DiskVfs(apsw.VFS):
    """Files on the real disk and, in parallel, on a disk that loses data."""

    def __init__(self, name: str, disk: Disk) -> None:
        super().__init__(name, "")
        self._disk = disk

    def xOpen(self, name: Any, flags: list[int]) -> _TrackedFile:  # noqa: N802
        return _TrackedFile(self._disk, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802
        super().xDelete(filename, syncdir)
        self._disk.delete(filename.rpartition("/")[2])


class Cursor:
    """One result, read completely."""

    arraysize = 1

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self.description: Any = None
        self.rowcount = -1
        self.lastrowid: int | None = None
        self._rows: list[Any] = []

    def execute(self, statement: str, parameters: Any = ()) -> Cursor:
        return self._run(statement, parameters, many=False)

    def executemany(self, statement: str, rows: Iterable[Any]) -> Cursor:
        return self._run(statement, list(rows), many=True)

    def _run(self, statement: str, parameters: Any, *, many: bool) -> Cursor:
        cursor = self._connection.cursor()
        self.description = None

        def trace(running: apsw.Cursor, _sql: str, _bindings: Any) -> bool:
            found = running.get_description()
            self.description = [(name, *[None] * 6) for name, _ in found] or None
            return True

        cursor.exec_trace = trace
        before = self._connection.total_changes()
        try:
            run = cursor.executemany if many else cursor.execute
            self._rows = list(run(statement, parameters))
        except apsw.Error as error:
            raise sqlite3.OperationalError(str(error)) from error
        self.rowcount = self._connection.total_changes() - before
        self.lastrowid = self._connection.last_insert_rowid()
        return self

    def fetchall(self) -> list[Any]:
        rows, self._rows = self._rows, []
        return rows

    def fetchone(self) -> Any:
        return self._rows.pop(0) if self._rows else None

    def fetchmany(self, size: int = 1) -> list[Any]:
        rows, self._rows = self._rows[:size], self._rows[size:]
        return rows

    def close(self) -> None:
        self._rows = []


class Connection:
    """The parts of `sqlite3.Connection` that SQLAlchemy and the store use."""

    isolation_level: str | None = None

    def __init__(self, path: str, vfs: str) -> None:
        self._connection = apsw.Connection(path, vfs=vfs)
        # Our file system has no shared memory, so the only connection owns the file.
        self.execute("PRAGMA locking_mode=EXCLUSIVE")

    def cursor(self) -> Cursor:
        return Cursor(self._connection)

    def execute(self, statement: str) -> Cursor:
        return self.cursor().execute(statement)

    def create_function(self, *arguments: Any, **options: Any) -> None:
        """SQLAlchemy registers REGEXP; it is not used here."""

    def commit(self) -> None:
        if self._connection.in_transaction:
            self.execute("COMMIT")

    def rollback(self) -> None:
        if self._connection.in_transaction:
            self.execute("ROLLBACK")

    def close(self) -> None:
        self._connection.close()
