"""Pages are read in few ranges, and each gets its own bytes."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from skep.archive.near_reads import GAP, near_groups, read_frames
from skep.archive.ports import Archive


@dataclass(frozen=True)
class Page:
    """Where a page is."""

    id: int
    segment: str
    offset: int
    length: int


@dataclass
class Segments:
    """Segments whose bytes say where they are."""

    reads: list[tuple[str, int, int]] = field(default_factory=list)

    async def read(self, segment: str, offset: int, length: int) -> bytes:
        self.reads.append((segment, offset, length))
        return content(segment, offset, length)


def content(segment: str, offset: int, length: int) -> bytes:
    step = ord(segment)
    return bytes((at * step) % 251 for at in range(offset, offset + length))


def read(archive: Segments, pages: list[Page]) -> dict[int, bytes]:
    return asyncio.run(read_frames(cast("Archive", cast("Any", archive)), pages))


PLACES = st.tuples(st.sampled_from("ab"), st.integers(0, 500_000), st.integers(0, 300))


@given(st.lists(PLACES, max_size=12))
def test_every_page_gets_its_own_bytes(places: list[tuple[str, int, int]]) -> None:
    pages = [Page(number, *place) for number, place in enumerate(places)]
    kept = [page for page in pages if page.length]
    archive = Segments()
    assert read(archive, pages) == {
        page.id: content(page.segment, page.offset, page.length) for page in kept
    }
    assert len(archive.reads) == len(near_groups(kept))
    # What is read in vain is bounded by the gaps that are read along.
    assert sum(length for *_, length in archive.reads) <= sum(page.length + GAP for page in kept)


def test_near_pages_are_one_read_and_far_ones_are_not() -> None:
    near = [Page(2, "a", 100 + GAP, 50), Page(1, "a", 0, 100)]
    far = Page(3, "a", 100 + GAP + 50 + GAP + 1, 10)
    archive = Segments()
    read(archive, [*near, far, Page(4, "b", 0, 10), Page(5, "b", 0, 0)])
    assert archive.reads == [("a", 0, 150 + GAP), ("a", far.offset, 10), ("b", 0, 10)]
