"""Maps the bytes of a segment to objects of a bucket: names and arithmetic, no I/O.

A sealed segment is one object, `WRITER/NAME.warc.zst`. Before, it consists of parts under
`WRITER/parts/NUMBER/`, each named by the offset of its first byte. Offsets are those of the whole
segment, so that a location stays valid when parts are sealed. Used by centers.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from skep.archive.segments import SUFFIX, is_segment, segment_name

_PART = re.compile(r"([^/]+)/parts/([0-9]{8})/([0-9]{14})")
_NUMBER = len("-00000000") + len(SUFFIX)


class Found(NamedTuple):
    """An object as a listing shows it."""

    key: str
    size: int
    #: Unix time at which it was written, by the clock of the storage.
    modified: float


class Piece(NamedTuple):
    """An object and the position of its bytes in a segment."""

    key: str
    start: int
    size: int

    @property
    def end(self) -> int:
        return self.start + self.size


class Slice(NamedTuple):
    """Bytes of one object."""

    key: str
    start: int
    length: int


class Layout:
    """The objects of one segment: the sealed one, if any, and its parts."""

    def __init__(self, whole: Piece | None = None, parts: Iterable[Piece] = ()) -> None:
        self.whole = whole
        self.parts = sorted(parts, key=lambda part: part.start)

    @property
    def whole_end(self) -> int:
        return self.whole.end if self.whole else 0

    @property
    def end(self) -> int:
        """The end of the bytes that can be read from the start without a gap."""
        end = self.whole_end
        for part in self.parts:
            if part.start > end:
                break
            end = max(end, part.end)
        return end

    @property
    def size(self) -> int:
        """Bytes that it takes in the bucket."""
        return sum(piece.size for piece in self._pieces())

    def keys(self) -> list[str]:
        return [piece.key for piece in self._pieces()]

    def beyond_whole(self) -> list[Piece]:
        """Parts that the sealed object does not contain."""
        return [part for part in self.parts if part.end > self.whole_end]

    def slices(self, offset: int, length: int) -> list[Slice] | None:
        """The slices of a range, in order; None when some bytes are missing."""
        found: list[Slice] = []
        position, end = offset, offset + length
        while position < end:
            piece = self._holder(position)
            if piece is None:
                return None
            stop = min(end, piece.end)
            found.append(Slice(piece.key, position - piece.start, stop - position))
            position = stop
        return found

    def _holder(self, position: int) -> Piece | None:
        """Prefers a part: while there are parts, the sealed object has not been verified yet."""
        after = bisect_right(self.parts, position, key=lambda part: part.start)
        nearby = [self.parts[after - 1]] if after else []
        whole = [self.whole] if self.whole else []
        found = (piece for piece in (*nearby, *whole) if piece.start <= position < piece.end)
        return next(found, None)

    def _pieces(self) -> list[Piece]:
        return [self.whole, *self.parts] if self.whole else self.parts


def writer_of(segment: str) -> str:
    return segment[:-_NUMBER]


def number_of(segment: str) -> int:
    return int(segment[-_NUMBER + 1 : -len(SUFFIX)])


def whole_key(segment: str) -> str:
    return f"{writer_of(segment)}/{segment}"


def parts_folder(segment: str) -> str:
    return f"{writer_of(segment)}/parts/{number_of(segment):08d}"


def part_key(segment: str, offset: int) -> str:
    return f"{parts_folder(segment)}/{offset:014d}"


def layouts(objects: Iterable[Found]) -> dict[str, Layout]:
    """The layouts in a listing, by segment; objects with other names are ignored."""
    found: dict[str, Layout] = {}
    for one in objects:
        if part := _PART.fullmatch(one.key):
            segment = segment_name(part[1], int(part[2]))
            layout = found.setdefault(segment, Layout())
            layout.parts.append(Piece(one.key, int(part[3]), one.size))
        elif is_segment(name := one.key.rpartition("/")[2]) and one.key == whole_key(name):
            found.setdefault(name, Layout()).whole = Piece(one.key, 0, one.size)
    return {name: Layout(layout.whole, layout.parts) for name, layout in found.items()}
