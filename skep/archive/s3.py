"""An archive in S3-compatible storage, used by centers: `skep.archive.ports.Archive`.

An append is durable in the bucket, and readable from every center, when it returns.
Appends that arrive during a PUT share the next one. Segments that have reached their size are
sealed in the background: many small objects become one `.warc.zst`.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence
from contextlib import suppress
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import NamedTuple

from skep import __version__
from skep.archive.bucket import Bucket
from skep.archive.bucket_segments import BucketSegments
from skep.archive.frames import FrameMaker
from skep.archive.ports import CommittedEnd, RecordLocation, SetAside
from skep.archive.segment_objects import Layout, number_of
from skep.archive.segments import check_writer, empty_store, segment_name
from skep.errors import ArchiveDown, ConfigurationError, SkepError, Unavailable
from skep.runtime.backoff import Backoff
from skep.runtime.clock import Clock, SystemClock
from skep.runtime.file_lock import try_lock
from skep.runtime.retry import Pauses

log = logging.getLogger(__name__)

#: Maximum bytes of one PUT, so that no caller waits for all the others.
GROUP_BYTES = 16 * 2**20
#: Maximum bytes of a segment, which is written from memory in one piece.
SEGMENT_MOST = 64 * 2**20
#: Maximum taken names of one append. More than one means another process with this name.
TRIES = 5
#: Time limit of `usage`, in seconds, also when the storage does not answer.
LOOK_SECONDS = 3.0
#: A bucket with fewer segments is counted on every call, a larger one after this many seconds.
COUNT_ALWAYS, COUNT_EVERY = 100, 60.0
_AGAIN = Backoff(first=1.0, cap=60.0)


class _PendingAppend(NamedTuple):
    """One caller's blobs, and its future."""

    blobs: Sequence[bytes]
    places: asyncio.Future[list[RecordLocation]]


class S3Archive:
    """Segments in one bucket, written under the name of one writer."""

    def __init__(
        self,
        bucket: Bucket,
        writer: str,
        segment_bytes: int,
        home: Path,
        maker: FrameMaker | None = None,
        clock: Clock | None = None,
    ) -> None:
        check_writer(writer)
        self._bucket = bucket
        self._writer = writer
        self._segment_bytes = min(segment_bytes, SEGMENT_MOST)
        self._home = home
        self._clock = clock or SystemClock()
        self._rng = Random()  # noqa: S311 - jitter and record ids, no secrets
        self._maker = maker or FrameMaker(self._clock, self._rng)
        self._bucket_segments = BucketSegments(bucket)
        self._lock: int | None = None
        self._tickets: asyncio.Queue[_PendingAppend | None] = asyncio.Queue()
        self._full: asyncio.Queue[str] = asyncio.Queue()
        self._writing: asyncio.Task[None] | None = None
        self._sealing: asyncio.Task[None] | None = None
        self._number = 0
        self._end = 0
        #: The next append starts a new segment: there is none, or the result of a PUT is unknown.
        self._spent = True
        #: The last PUT failed: check first whether the storage is available again.
        self._down = False
        self._counted: tuple[float, tuple[int, int]] | None = None

    async def open(
        self, committed_end: CommittedEnd, *, store_is_empty: bool = False
    ) -> list[SetAside]:
        """Lock, compare with what was committed, start after the newest segment.

        Nothing is cut off: a PUT is complete or never happened. A restarted center starts a new
        segment, so that no late PUT of the earlier process can reach the current segment.
        """
        self._home.mkdir(parents=True, exist_ok=True)
        self._lock = try_lock(self._home / f"archive-{self._writer}.lock")
        if self._lock is None:
            raise ConfigurationError(f"another process writes to the archive as {self._writer}")
        try:
            await self._sign()
            unknown = await self._resume(committed_end, refuse=store_is_empty)
        except BaseException:
            self._unlock()
            raise
        self._writing = asyncio.create_task(self._write_groups())
        self._sealing = asyncio.create_task(self._seal_all())
        return unknown

    async def _resume(self, committed_end: CommittedEnd, *, refuse: bool) -> list[SetAside]:
        found = await self._bucket_segments.all(self._writer)
        if refuse and found:
            raise empty_store(self._writer, len(found), self.describe())
        self._number = max(map(number_of, found), default=0)
        newest = segment_name(self._writer, self._number)
        following = segment_name(self._writer, self._number + 1)
        for name, there in ((newest, found.get(newest, Layout()).end), (following, 0)):
            if (committed := await committed_end(name)) > there:
                raise ConfigurationError(
                    f"{name} has {there} bytes in {self.describe()}, but {committed} were "
                    "committed: is this the right bucket and folder? Restore it from a "
                    "backup before you start this center."
                )
        unknown = []
        for name in sorted(found):
            committed = await committed_end(name)
            if not committed:
                unknown.append(SetAside(name, found[name].end))
            self._take_up(name, found[name])
        return unknown

    def _take_up(self, name: str, layout: Layout) -> None:
        """Seal segments of an earlier process, also those that no row refers to: they are kept."""
        if layout.whole is None or len(layout.beyond_whole()) < len(layout.parts):
            self._full.put_nowait(name)

    async def append(self, blobs: Sequence[bytes]) -> list[RecordLocation]:
        """PUT; the locations are in the order of the blobs. Raises ArchiveDown."""
        if self._writing is None or self._writing.done():
            raise Unavailable("the archive is not open")
        if not blobs:
            return []
        places: asyncio.Future[list[RecordLocation]] = asyncio.get_running_loop().create_future()
        self._tickets.put_nowait(_PendingAppend(tuple(blobs), places))
        return await places

    async def read(self, segment: str, offset: int, length: int) -> bytes:
        """The bytes at a location, in any writer's segment; raises NotFound."""
        return await self._bucket_segments.read(segment, offset, length)

    async def close(self) -> None:
        """Finish pending appends; the next process seals unsealed segments."""
        writing, self._writing = self._writing, None
        if writing is not None:
            self._tickets.put_nowait(None)
            await writing
        if self._sealing is not None:
            self._sealing.cancel()
            with suppress(asyncio.CancelledError):
                await self._sealing
            self._sealing = None
        self._unlock()

    def _unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
        self._lock = None

    async def delete(self, segment: str) -> int | None:
        self._counted = None
        return await self._bucket_segments.delete(segment, self._writer)

    async def usage(self) -> tuple[int, int]:
        """(segments, bytes) of all writers; it also proves that the bucket can be written to."""
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                await self._sign()
        except TimeoutError as error:
            raise ArchiveDown(f"the archive {self.describe()} does not answer") from error
        now = self._clock.monotonic()
        if self._counted and self._counted[1][0] > COUNT_ALWAYS:
            at, known = self._counted
            if now - at < COUNT_EVERY:
                return known
        found = await self._bucket_segments.all()
        counted = len(found), sum(layout.size for layout in found.values())
        self._counted = now, counted
        return counted

    async def sizes(self, segments: Sequence[str]) -> dict[str, int]:
        found = {name: (await self._bucket_segments.look(name)).end for name in segments}
        return {name: end for name, end in found.items() if end}

    async def check(self) -> None:
        """Does nothing: no check is cheap, and the next append detects a missing bucket."""

    async def _sign(self) -> None:
        """Write a small object with the owner of the folder; it proves that writes work."""
        line = f"Archive segments of the center {self._writer}, Skep {__version__}.\n"
        await self._bucket.put(f"{self._writer}/README.txt", line.encode())

    def describe(self) -> str:
        return str(self._bucket.place)

    # -- writing

    async def _write_groups(self) -> None:
        closing = False
        while not closing:
            group, closing = await self._next_group()
            if group:
                await self._settle(group)

    async def _next_group(self) -> tuple[list[_PendingAppend], bool]:
        """Wait for an append, then take all that arrived meanwhile: (group, closing)."""
        group: list[_PendingAppend] = []
        size = 0
        ticket = await self._tickets.get()
        while ticket is not None:
            group.append(ticket)
            size += sum(map(len, ticket.blobs))
            if size >= GROUP_BYTES or self._tickets.empty():
                return group, False
            ticket = self._tickets.get_nowait()
        return group, True

    async def _settle(self, group: list[_PendingAppend]) -> None:
        try:
            places = iter(await self._put([blob for ticket in group for blob in ticket.blobs]))
        except Exception as error:  # noqa: BLE001 - passed on to the callers
            for ticket in group:
                if not ticket.places.done():
                    ticket.places.set_exception(error)
            return
        for ticket in group:
            own = [next(places) for _ in ticket.blobs]
            if not ticket.places.done():
                ticket.places.set_result(own)

    async def _put(self, blobs: Sequence[bytes]) -> list[RecordLocation]:
        if self._down:
            await self._sign()
            self._down = False
        for _ in range(TRIES):
            if self._spent or self._end >= self._segment_bytes:
                self._begin_next()
            name = segment_name(self._writer, self._number)
            first = self._first_frame(name) if self._end == 0 else b""
            if await self._added(name, b"".join((first, *blobs))):
                starts = [*accumulate(map(len, blobs), initial=self._end + len(first))]
                self._end = starts.pop()
                return [RecordLocation(name, start) for start in starts]
        raise ArchiveDown(
            f"the segment names of {self._writer} are taken: does another center use a copy of "
            "this data folder? Give it its own folder."
        )

    async def _added(self, name: str, data: bytes) -> bool:
        """After an error the PUT may still happen, and a taken name may be the result of a PUT of
        this process whose answer was lost: in both cases nothing is added after it."""
        try:
            added = await self._bucket_segments.add(name, self._end, data)
        except BaseException:
            self._spent = self._down = True
            raise
        self._spent = not added
        return added

    def _begin_next(self) -> None:
        if self._end:
            self._full.put_nowait(segment_name(self._writer, self._number))
        self._number, self._end, self._spent = self._number + 1, 0, False

    def _first_frame(self, name: str) -> bytes:
        return self._maker.warcinfo_frame(name, f"Skep/{__version__}")

    # -- sealing

    async def _seal_all(self) -> None:
        """Seal one after the other. A failed one goes to the end: its parts remain readable."""
        pauses = Pauses(_AGAIN, self._rng)
        while True:
            name = await self._full.get()
            try:
                await self._bucket_segments.seal(name)
                pauses.succeeded()
            except SkepError as error:
                log.warning("could not seal %s (%s); retrying", name, error.detail)
                self._full.put_nowait(name)
                await self._clock.sleep(pauses.failed())
