"""Segments in a bucket: adds parts, reads ranges, seals and deletes. For centers.

Any center reads every segment; only its writer adds to it and seals it. Nothing that can contain
acknowledged bytes is deleted before another object with these bytes was read back.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Iterator, Sequence

from skep.archive.bucket import Bucket
from skep.archive.segment_objects import (
    Layout,
    Piece,
    Slice,
    layouts,
    number_of,
    part_key,
    parts_folder,
    whole_key,
    writer_of,
)
from skep.archive.segments import is_segment
from skep.errors import ArchiveDown, NotFound

log = logging.getLogger(__name__)

#: Bytes of new parts that are read from memory: spiders read the newest pages.
RECENT_BYTES = 64 * 2**20
#: Maximum segments whose layout is cached.
KNOWN = 1000
#: Parts that are fetched in parallel for sealing.
AT_ONCE = 8
COMPARE_BYTES = 4 * 2**20
#: Deleting and sealing can happen together; after this many checks nothing new can appear.
LOOKS = 5


class RecentParts:
    """A cache of the newest objects of this process; the oldest are evicted first."""

    def __init__(self, limit: int = RECENT_BYTES) -> None:
        self._limit = limit
        self._size = 0
        self._objects: OrderedDict[str, bytes] = OrderedDict()

    def add(self, key: str, data: bytes) -> None:
        self._objects[key] = data
        self._size += len(data)
        while self._size > self._limit:
            _, gone = self._objects.popitem(last=False)
            self._size -= len(gone)

    def get(self, piece: Slice) -> bytes | None:
        data = self._objects.get(piece.key)
        return None if data is None else data[piece.start : piece.start + piece.length]

    def drop(self, keys: Sequence[str]) -> None:
        for key in keys:
            self._size -= len(self._objects.pop(key, b""))


class BucketSegments:
    """The segments of all writers in one bucket."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self._recent = RecentParts()
        self._known: OrderedDict[str, Layout] = OrderedDict()
        #: By writer, the lowest possible number of its newest segment, which is never deleted.
        self._newest: dict[str, int] = {}

    async def add(self, segment: str, offset: int, data: bytes) -> bool:
        """Put a part; False when an object with its name exists, which is never replaced."""
        key = part_key(segment, offset)
        if not await self._bucket.put_new(key, data):
            return False
        self._recent.add(key, data)
        known = self._known.get(segment, Layout())
        self._remember(segment, Layout(known.whole, [*known.parts, Piece(key, offset, len(data))]))
        return True

    async def read(self, segment: str, offset: int, length: int) -> bytes:
        """The bytes at a location; raises NotFound.

        The cached layout can be old (a segment was sealed, or has grown), so a miss reads it
        again, and again when parts were sealed between the listing and the read.
        """
        if not is_segment(segment) or offset < 0 or length < 0:
            raise NotFound("the archive has no such location")
        for look in range(LOOKS):
            layout = (self._known.get(segment) if not look else None) or await self.look(segment)
            data = await self._read(layout.slices(offset, length))
            if data is not None:
                return data
            self._known.pop(segment, None)
            if look and layout.end < offset + length:
                break  # the layout is fresh, and the bytes do not exist
        raise NotFound(f"the archive has no such bytes of the segment {segment}")

    async def _read(self, slices: Sequence[Slice] | None) -> bytes | None:
        if slices is None:
            return None
        found = [self._recent.get(piece) or await self._bucket.get(*piece) for piece in slices]
        return None if None in found else b"".join(data for data in found if data)

    async def look(self, segment: str) -> Layout:
        """The current layout. Parts are listed first: they are deleted after sealing."""
        parts = layouts(await self._bucket.list(parts_folder(segment)))
        size = await self._bucket.size(whole_key(segment))
        whole = None if size is None else Piece(whole_key(segment), 0, size)
        layout = Layout(whole, parts.get(segment, Layout()).parts)
        self._remember(segment, layout)
        return layout

    async def all(self, writer: str = "") -> dict[str, Layout]:
        """Every segment of a writer, or of all of them."""
        return layouts(await self._bucket.list(writer))

    async def newest_write(self, segment: str) -> float:
        """When its newest part was written."""
        found = await self._bucket.list(parts_folder(segment))
        return max((one.modified for one in found), default=0.0)

    async def delete(self, segment: str, me: str) -> int | None:
        """The bytes that were freed; None when it must stay, or when another center decides."""
        if not is_segment(segment):
            return None
        writer, number = writer_of(segment), number_of(segment)
        if number >= self._newest.get(writer, 0):
            self._newest[writer] = max(map(number_of, await self.all(writer)), default=0)
        layout = await self.look(segment)
        if not layout.keys():
            return 0 if writer == me else None
        if number >= self._newest[writer]:
            return None
        await self.drop(segment)
        return layout.size

    async def drop(self, segment: str) -> None:
        """Delete all of it, also a sealed object that is being written (see `seal`)."""
        for _ in range(LOOKS):
            keys = (await self.look(segment)).keys()
            self._recent.drop(keys)
            if not keys:
                break
            await self._bucket.delete(keys)
        self._known.pop(segment, None)

    async def seal(self, segment: str) -> None:
        """Join the parts into one object, read it back, then delete them.

        It can be interrupted anywhere and restarted. The first part is deleted before the
        others, so a sealed object without it was read back.
        """
        layout = await self.look(segment)
        if not layout.parts:
            return
        if layout.parts[0].start == 0:
            layout = await self._made_whole(segment, layout)
        held = [part.key for part in layout.parts if part.end <= layout.whole_end]
        first, *others = held or [""]
        if first:
            await self._bucket.delete([first])
            await self._bucket.delete(others)
        self._known.pop(segment, None)

    async def _made_whole(self, segment: str, layout: Layout) -> Layout:
        """The layout with the sealed object; an empty one when the segment was deleted."""
        parts = Layout(None, layout.parts)
        data = await self._joined(parts)
        key = whole_key(segment)
        await self._bucket.put(key, data)
        await self._compare(key, data)
        if await self._bucket.size(part_key(segment, 0)) is None:
            log.info("%s was deleted while it was sealed", segment)
            await self._bucket.delete([key])
            return Layout()
        return Layout(Piece(key, 0, len(data)), layout.parts)

    async def _joined(self, layout: Layout) -> bytearray:
        data = bytearray()
        for some in _few(layout.slices(0, layout.end) or []):
            for part in await asyncio.gather(*(self._bucket.get(*piece) for piece in some)):
                if part is None:
                    raise ArchiveDown("a part was deleted while its segment was sealed")
                data += part
        return data

    async def _compare(self, key: str, data: bytearray) -> None:
        """Read it back in pieces, so that it is in memory only once."""
        for start in range(0, len(data), COMPARE_BYTES):
            written = bytes(data[start : start + COMPARE_BYTES])
            if await self._bucket.get(key, start, len(written)) != written:
                raise ArchiveDown(f"{key} differs from what was written; its parts are kept")

    def _remember(self, segment: str, layout: Layout) -> None:
        self._known[segment] = layout
        self._known.move_to_end(segment)
        while len(self._known) > KNOWN:
            self._known.popitem(last=False)


def _few(slices: Sequence[Slice]) -> Iterator[Sequence[Slice]]:
    for start in range(0, len(slices), AT_ONCE):
        yield slices[start : start + AT_ONCE]
