"""What centers ask of an archive.

The order that makes it safe: frames are appended and synced *before* the rows that point
at them are committed, so a row never lacks its bytes. A crash in between leaves bytes that
no row knows; the next start sets them aside in a segment of their own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import msgspec


class RecordLocation(msgspec.Struct, frozen=True):
    """Where something was put."""

    segment: str
    offset: int


class SetAside(msgspec.Struct, frozen=True):
    """Bytes of whole records in an archive segment that the store does not know."""

    segment: str
    size: int


#: Asks the store for the end of the committed bytes of a segment.
CommittedEnd = Callable[[str], Awaitable[int]]


class Archive(Protocol):
    """Appends whole frames and reads them back."""

    async def open(
        self, committed_end: CommittedEnd, *, store_is_empty: bool = False
    ) -> list[SetAside]:
        """Set aside what the store does not know of this writer's segments, then be ready to
        append. Only an incomplete last record is cut, which was never acknowledged.

        Raises ConfigurationError for an empty store beside segments of this writer.
        """

    async def append(self, blobs: Sequence[bytes]) -> list[RecordLocation]:
        """Put each blob (one or more frames) and sync; raises DiskFull and keeps nothing.

        Calls made at the same time share one sync.
        """

    async def read(self, segment: str, offset: int, length: int) -> bytes:
        """The frames as they were put; raises NotFound."""

    async def close(self) -> None:
        """Finish what was begun and let go."""

    async def delete(self, segment: str) -> int | None:
        """Delete a segment into which no row points; its bytes, 0 when it was gone already.

        None, and nothing is deleted, for the newest of a writer (its number would be given
        out again) and for what another center may have in an archive of its own.
        """

    async def usage(self) -> tuple[int, int]:
        """(segments, bytes)."""

    async def sizes(self, segments: Sequence[str]) -> dict[str, int]:
        """The bytes of those of these segments that are there."""

    async def check(self) -> None:
        """Cheap, called every second; raises ArchiveDown when what was opened is gone."""

    def describe(self) -> str:
        """The place, for people."""
