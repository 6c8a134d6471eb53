"""Records into a file, each exactly once, whatever is killed and whenever.

Next to `NAME` lies `.NAME.position`: how long the file is, and which positions are in it.
A batch is written and synced first, then that file is replaced. After a crash in between,
the file is cut back to the recorded length and the batch is written again. A lock of the kernel
allows one writing process at a time. It never writes into the middle.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Protocol

import msgspec
from msgspec import Meta

from skep.errors import ConfigurationError, DiskFull, Unavailable
from skep.runtime.files import sync_folder
from skep.streams.blocking_thread import OneThread
from skep.streams.json_records import as_json, sort_out
from skep.streams.ports import Record, Refused
from skep.streams.position import read_state, replace_state
from skep.streams.sink_url import SinkUrl

HOPELESS = {
    errno.EACCES,
    errno.EEXIST,
    errno.EISDIR,
    errno.ENAMETOOLONG,
    errno.ENOTDIR,
    errno.EPERM,
    errno.EROFS,
}


class FileState(msgspec.Struct, frozen=True):
    """The side file."""

    offset: Annotated[int, Meta(ge=0)] = 0
    #: By the name of the source: several runs may write into one file, after each other.
    positions: dict[str, int] = {}
    fields: tuple[str, ...] = ()


class Format(Protocol):
    """How a record becomes bytes of a file."""

    def fields_of(self, head: bytes) -> tuple[str, ...]:
        """The columns of a file that was there before, from its first bytes."""

    def encode(
        self, records: Sequence[Record], fields: tuple[str, ...], *, at_start: bool
    ) -> tuple[bytes, list[Refused], tuple[str, ...]]:
        """(bytes to append, records that cannot be written, the columns from now on)."""


class JsonLines:
    """One JSON object on each line."""

    def fields_of(self, head: bytes) -> tuple[str, ...]:  # noqa: ARG002 - lines have no header
        return ()

    def encode(
        self,
        records: Sequence[Record],
        fields: tuple[str, ...],
        *,
        at_start: bool,  # noqa: ARG002 - lines have no header
    ) -> tuple[bytes, list[Refused], tuple[str, ...]]:
        lines, refused = sort_out(records, lambda record: as_json(record.data) + b"\n")
        return b"".join(lines), refused, fields


class FileSink:
    """A file that grows at its end."""

    HEAD_BYTES = 1 << 20

    def __init__(self, place: SinkUrl, name: str, form: Format) -> None:
        self._place = place
        self._path = Path(place.path)
        self._side = self._path.with_name(f".{self._path.name}.position")
        self._name, self._form = name, form
        self._thread = OneThread("sink-file")
        self._file: int | None = None
        self._state = FileState()

    async def open(self) -> int:
        return await self._thread.run(self._open)

    async def write(self, records: Sequence[Record]) -> list[Refused]:
        return await self._thread.run(self._write, list(records))

    async def close(self) -> None:
        await self._thread.run(self._let_go)
        await self._thread.close()

    def describe(self) -> str:
        return self._place.shown

    # -- in the thread

    def _open(self) -> int:
        self._let_go()
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            existed = self._path.exists()  # a removed file is begun again
            self._file = self._lock()
            known = read_state(self._side, FileState) if existed else None
            self._state = self._begin() if known is None else self._continue(known)
        except OSError as error:
            self._let_go()
            raise self._explain(error) from error
        except BaseException:
            self._let_go()
            raise
        return self._position

    @property
    def _position(self) -> int:
        return self._state.positions.get(self._name, 0)

    def _lock(self) -> int:
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(file)
            raise Unavailable(f"another process writes into {self._path}") from error
        return file

    def _begin(self) -> FileState:
        """No position yet: keep what is there, and remember where ours begins.

        The length is on disk before the first record is, so that a crash during the first
        batch differs from a file that another program made.
        """
        assert self._file is not None  # noqa: S101 - _lock came before
        end = os.lseek(self._file, 0, os.SEEK_END)
        if end and os.pread(self._file, 1, end - 1) != b"\n":
            end += os.pwrite(self._file, b"\n", end)
            os.fsync(self._file)
        head = os.pread(self._file, self.HEAD_BYTES, 0) if end else b""
        state = FileState(end, {}, self._form.fields_of(head))
        sync_folder(self._path.parent)
        replace_state(self._side, state)
        return state

    def _continue(self, state: FileState) -> FileState:
        assert self._file is not None  # noqa: S101 - _lock came before
        size = os.fstat(self._file).st_size
        if size < state.offset:
            raise ConfigurationError(
                f"{self._path} has {size} bytes, but {state.offset} were written: put it back, "
                f"or remove it and {self._side.name} to start again."
            )
        if size > state.offset:
            os.ftruncate(self._file, state.offset)
            os.fsync(self._file)
        return state

    def _write(self, records: list[Record]) -> list[Refused]:
        if self._file is None or self._was_moved(self._file):
            self._open()
        fresh = [record for record in records if record.position > self._position]
        if not fresh:
            return []
        state = self._state
        data, refused, fields = self._form.encode(fresh, state.fields, at_start=state.offset == 0)
        if not refused:
            self._append(data, fresh[-1].position, fields)
        return refused

    def _was_moved(self, file: int) -> bool:
        """Whether the name leads to another file by now, and the open one could not be found."""
        try:
            return not os.path.samestat(self._path.stat(), os.fstat(file))
        except FileNotFoundError:
            return True

    def _append(self, data: bytes, position: int, fields: tuple[str, ...]) -> None:
        before = self._state
        after = FileState(
            before.offset + len(data), {**before.positions, self._name: position}, fields
        )
        try:
            self._put(data, before.offset)
            replace_state(self._side, after)
        except OSError as error:
            # Whether the side file was replaced is not known: the next call reads it again.
            self._let_go()
            raise self._explain(error) from error
        self._state = after

    def _put(self, data: bytes, offset: int) -> None:
        assert self._file is not None  # noqa: S101 - _write opened it
        rest = memoryview(data)
        while rest:
            done = os.pwrite(self._file, rest, offset)
            rest, offset = rest[done:], offset + done
        os.fsync(self._file)

    def _let_go(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            os.close(file)

    def _explain(self, error: OSError) -> Exception:
        said = f"{self._path}: {error.strerror or error}"
        if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
            return DiskFull(said)
        if error.errno in HOPELESS:
            return ConfigurationError(said)
        return Unavailable(said)
