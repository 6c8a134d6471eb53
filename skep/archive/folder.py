"""An archive in a folder, used by centers: `skep.archive.ports.Archive` on files.

Its own thread writes and syncs; the event loop never waits for the disk. Appends that arrive
during a sync share the next one (group commit). Several centers can share a folder, each as a
writer with its own name; any of them can read all segments.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from queue import Empty, SimpleQueue
from random import Random
from threading import Thread
from typing import NamedTuple

from skep.archive.frames import FrameMaker
from skep.archive.ports import CommittedEnd, RecordLocation, SetAside
from skep.archive.segments import (
    SegmentWriter,
    delete_segment,
    empty_store,
    is_segment,
    segment_name,
)
from skep.errors import ArchiveDown, ConfigurationError, NotFound, Unavailable
from skep.runtime.clock import SystemClock

#: Maximum bytes of one sync, so that no caller waits for all the others.
GROUP_BYTES = 32 * 2**20


class _PendingAppend(NamedTuple):
    """One caller's blobs, and its future."""

    blobs: Sequence[bytes]
    size: int
    places: asyncio.Future[list[RecordLocation]]


class _Settled(NamedTuple):
    """The result of one pending append."""

    ticket: _PendingAppend
    places: list[RecordLocation]
    error: Exception | None


class FolderArchive:
    """Segments in one folder, written under the name of one writer."""

    def __init__(
        self, folder: Path, writer: str, segment_bytes: int, maker: FrameMaker | None = None
    ) -> None:
        self._folder = folder
        self._writer = writer
        maker = maker or FrameMaker(SystemClock(), Random())  # noqa: S311 - record ids, no secrets
        self._segments = SegmentWriter(folder, writer, segment_bytes, maker)
        self._tickets: SimpleQueue[_PendingAppend | None] = SimpleQueue()
        self._thread: Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def open(
        self, committed_end: CommittedEnd, *, store_is_empty: bool = False
    ) -> list[SetAside]:
        """Lock, set aside records that the store does not know, start the thread."""
        await asyncio.to_thread(self._segments.lock)
        try:
            if store_is_empty:
                self._refuse_segments()
            unknown = await self._resume(committed_end)
        except OSError as error:
            self._segments.close()
            raise ConfigurationError(f"archive {self._folder}: {error}") from error
        except BaseException:
            self._segments.close()
            raise
        self._loop = asyncio.get_running_loop()
        self._thread = Thread(target=self._write_groups, name="skep-archive", daemon=True)
        self._thread.start()
        return unknown

    def _refuse_segments(self) -> None:
        numbers = self._segments.numbers()
        if numbers:
            raise empty_store(self._writer, len(numbers), self.describe())

    async def _resume(self, committed_end: CommittedEnd) -> list[SetAside]:
        newest, following = await asyncio.to_thread(self._segments.newest)
        if await committed_end(following):
            raise ConfigurationError(
                f"{self._folder / following} is missing, but its bytes were committed: is "
                "this the right archive folder, and is it mounted?"
            )
        if not newest:
            return []
        unknown = await self._unknown_segments(newest, committed_end)
        committed = await committed_end(newest)
        kept = await asyncio.to_thread(self._segments.resume, newest, committed)
        return [*unknown, kept] if kept else unknown

    async def _unknown_segments(self, newest: str, committed_end: CommittedEnd) -> list[SetAside]:
        """Older segments that no row refers to. They stay where they are."""
        names = [segment_name(self._writer, number) for number in self._segments.numbers()]
        return [
            SetAside(name, self._segments.size_of(name))
            for name in names
            if name != newest and not await committed_end(name)
        ]

    async def append(self, blobs: Sequence[bytes]) -> list[RecordLocation]:
        """Write and sync; the locations are in the order of the blobs."""
        if self._thread is None or self._loop is None:
            raise Unavailable("the archive is not open")
        if not blobs:
            return []
        places: asyncio.Future[list[RecordLocation]] = self._loop.create_future()
        self._tickets.put(_PendingAppend(tuple(blobs), sum(map(len, blobs)), places))
        return await places

    async def read(self, segment: str, offset: int, length: int) -> bytes:
        """The bytes at a location, in any writer's segment; raises NotFound."""
        if not is_segment(segment):
            raise NotFound("there is no such archive segment")
        return await asyncio.to_thread(self._read, self._folder / segment, offset, length)

    def _read(self, path: Path, offset: int, length: int) -> bytes:
        try:
            return _read(path, offset, length)
        except NotFound:
            self._segments.check()  # raises when the folder is missing, which may be temporary
            raise
        except OSError as error:
            raise ArchiveDown(f"cannot read {path}: {error.strerror}") from error

    async def close(self) -> None:
        """Finish pending appends, stop the thread, release the lock; can be called twice."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._tickets.put(None)
            await asyncio.to_thread(thread.join)
            self._segments.close()

    async def delete(self, segment: str) -> int | None:
        """Durable when it returns: after a power cut the segment does not reappear."""
        return await asyncio.to_thread(delete_segment, self._folder, segment, self._writer)

    async def usage(self) -> tuple[int, int]:
        """(segments, bytes) of the whole folder, all writers together."""
        return await asyncio.to_thread(self._usage)

    def _usage(self) -> tuple[int, int]:
        self._segments.check()
        return _usage(self._folder)

    async def sizes(self, segments: Sequence[str]) -> dict[str, int]:
        return await asyncio.to_thread(self._sizes, segments)

    def _sizes(self, segments: Sequence[str]) -> dict[str, int]:
        self._segments.check()  # without the folder all of them would seem to be lost
        found = {}
        for name in filter(is_segment, segments):
            with suppress(FileNotFoundError):
                found[name] = self._segments.size_of(name)
        return found

    async def check(self) -> None:
        await asyncio.to_thread(self._segments.check)

    def describe(self) -> str:
        return str(self._folder)

    def _write_groups(self) -> None:
        """The thread: writes one group after the other until it is told to end."""
        closing = False
        while not closing:
            group, closing = self._next_group()
            if group:
                self._settle(self._written(group))

    def _next_group(self) -> tuple[list[_PendingAppend], bool]:
        """Wait for an append, then take all that arrived meanwhile: (group, closing)."""
        group: list[_PendingAppend] = []
        size = 0
        ticket = self._tickets.get()
        while ticket is not None:
            group.append(ticket)
            size += ticket.size
            if size >= GROUP_BYTES:
                return group, False
            try:
                ticket = self._tickets.get_nowait()
            except Empty:
                return group, False
        return group, True

    def _written(self, group: list[_PendingAppend]) -> list[_Settled]:
        try:
            every = self._segments.append([blob for ticket in group for blob in ticket.blobs])
        except Exception as error:  # noqa: BLE001 - passed on to the callers
            return [_Settled(ticket, [], error) for ticket in group]
        places = iter(every)
        return [_Settled(t, list(islice(places, len(t.blobs))), None) for t in group]

    def _settle(self, settled: list[_Settled]) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed: no caller waits any more
                self._loop.call_soon_threadsafe(_tell, settled)


def _tell(settled: list[_Settled]) -> None:
    for ticket, places, error in settled:
        if ticket.places.done():
            continue  # the caller was cancelled
        if error is not None:
            ticket.places.set_exception(error)
        else:
            ticket.places.set_result(places)


def _read(path: Path, offset: int, length: int) -> bytes:
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError as error:
        raise NotFound(f"the archive has no segment {path.name}") from error
    try:
        if offset < 0 or length < 0 or offset + length > os.fstat(file).st_size:
            raise NotFound(f"the archive segment {path.name} has no such bytes")
        return _read_exactly(file, offset, length)
    finally:
        os.close(file)


def _read_exactly(file: int, offset: int, length: int) -> bytes:
    """One pread, unless it is longer than the kernel returns at once (2 GiB)."""
    data = os.pread(file, length, offset)
    while len(data) < length:
        more = os.pread(file, length - len(data), offset + len(data))
        if not more:
            raise NotFound("the archive segment was truncated while it was read")
        data += more
    return data


def _usage(folder: Path) -> tuple[int, int]:
    with os.scandir(folder) as entries:
        sizes = [entry.stat().st_size for entry in entries if is_segment(entry.name)]
    return len(sizes), sum(sizes)
