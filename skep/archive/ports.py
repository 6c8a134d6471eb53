"""The contract of an archive with centers.

The order that makes it safe: frames are appended and synced *before* the rows that refer to them
are committed, so a row never lacks its bytes. A crash in between leaves bytes that no row refers
to; the next start sets them aside in a segment of their own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import msgspec


class RecordLocation(msgspec.Struct, frozen=True):
    """The location of stored bytes."""

    segment: str
    offset: int


class SetAside(msgspec.Struct, frozen=True):
    """Bytes of complete records in an archive segment that the store does not know."""

    segment: str
    size: int


#: Asks the store for the end of the committed bytes of a segment.
CommittedEnd = Callable[[str], Awaitable[int]]


class Archive(Protocol):
    """Appends complete frames and reads them back."""

    async def open(
        self, committed_end: CommittedEnd, *, store_is_empty: bool = False
    ) -> list[SetAside]:
        """Set aside records of this writer's segments that the store does not know, then be ready
        to append. Only an incomplete last record is cut off, which was never acknowledged.

        Raises ConfigurationError for an empty store with segments of this writer.
        """

    async def append(self, blobs: Sequence[bytes]) -> list[RecordLocation]:
        """Write each blob (one or more frames) and sync; raises DiskFull and keeps nothing.

        Calls made at the same time share one sync.
        """

    async def read(self, segment: str, offset: int, length: int) -> bytes:
        """The frames as they were appended; raises NotFound."""

    async def close(self) -> None:
        """Finish started calls and release the files."""

    async def delete(self, segment: str) -> int | None:
        """Delete a segment that no row refers to; returns its bytes, 0 when it was gone already.

        None, and nothing is deleted, for the newest of a writer (its number would be used again)
        and for segments that another center may have in its own archive.
        """

    async def usage(self) -> tuple[int, int]:
        """(segments, bytes)."""

    async def sizes(self, segments: Sequence[str]) -> dict[str, int]:
        """The sizes of those of these segments that exist."""

    async def check(self) -> None:
        """Cheap, called every second; raises ArchiveDown when the opened folder is gone."""

    def describe(self) -> str:
        """The location, for display."""
