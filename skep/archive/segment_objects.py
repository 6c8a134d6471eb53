"""Which objects of a bucket hold which bytes of a segment: names and arithmetic, no I/O.

A segment is `WRITER/NAME.warc.zst`, one object, when it is sealed. Until then it is parts
under `WRITER/parts/NUMBER/`, each named by the offset of its first byte. Offsets are those
of the whole, so that a place stays good when parts become a whole. Used by centers.
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
    """An object and the place of its bytes in a segment."""

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
    """Where the bytes of one segment are: its whole, if there is one, and its parts."""

    def __init__(self, whole: Piece | None = None, parts: Iterable[Piece] = ()) -> None:
        self.whole = whole
        self.parts = sorted(parts, key=lambda part: part.start)

    @property
    def whole_end(self) -> int:
        return self.whole.end if self.whole else 0

    @property
    def end(self) -> int:
        """Just behind the last byte that can be read without a gap from the first one."""
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
        """Parts that the whole does not hold."""
        return [part for part in self.parts if part.end > self.whole_end]

    def slices(self, offset: int, length: int) -> list[Slice] | None:
        """The bytes of a place, in order; None when some of them are nowhere."""
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
        """A part before the whole: while there are parts, nobody has compared the whole yet."""
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
    """By segment, of a listing; what is not named like a piece is not ours."""
    found: dict[str, Layout] = {}
    for one in objects:
        if part := _PART.fullmatch(one.key):
            segment = segment_name(part[1], int(part[2]))
            layout = found.setdefault(segment, Layout())
            layout.parts.append(Piece(one.key, int(part[3]), one.size))
        elif is_segment(name := one.key.rpartition("/")[2]) and one.key == whole_key(name):
            found.setdefault(name, Layout()).whole = Piece(one.key, 0, one.size)
    return {name: Layout(layout.whole, layout.parts) for name, layout in found.items()}
