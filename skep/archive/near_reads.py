"""Reads archived pages with few calls: records that lie near each other come in one range. Pure,
but for the archive that it is given.

The frames of one report were appended in one piece, so the pages of a block are mostly one range.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

from skep.archive.ports import Archive

#: Bytes between two pages of a segment that are read along rather than skipped.
GAP = 64 * 1024


class Located(Protocol):
    """A page and where its records are; a length of 0 means that nothing was archived."""

    @property
    def id(self) -> int: ...
    @property
    def segment(self) -> str: ...
    @property
    def offset(self) -> int: ...
    @property
    def length(self) -> int: ...


P = TypeVar("P", bound=Located)


async def read_frames(archive: Archive, pages: Iterable[Located]) -> dict[int, bytes]:
    """The bytes of pages by their ids; pages without bytes are absent."""
    frames: dict[int, bytes] = {}
    for group in near_groups([page for page in pages if page.length]):
        start = group[0].offset
        end = max(page.offset + page.length for page in group)
        data = await archive.read(group[0].segment, start, end - start)
        for page in group:
            frames[page.id] = data[page.offset - start : page.offset - start + page.length]
    return frames


def near_groups(pages: Sequence[P]) -> list[list[P]]:
    """Pages of one segment that are at most `GAP` bytes apart are one group."""
    groups: list[list[P]] = []
    end = 0
    for page in sorted(pages, key=lambda page: (page.segment, page.offset)):
        near = groups and groups[-1][0].segment == page.segment and page.offset - end <= GAP
        if near:
            groups[-1].append(page)
        else:
            groups.append([page])
        end = page.offset + page.length
    return groups
