"""The store's contract for alerts and segments. The rules of `store/ports` apply."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from skep.model.archived_page import ArchivedPage


class Alerts(Protocol):
    """Used by `lanes`: conditions that an operator should know, such as a full lane."""

    async def raise_(self, kind: str, subject: str, detail: str, now: float) -> None:
        """One row per (kind, subject), with a count and the newest detail."""

    async def recent(self, limit: int) -> list[dict[str, Any]]:
        """Newest first."""


class Segments(Protocol):
    """Used by the archive at start, to find the end of the committed bytes of a segment."""

    async def committed_end(self, segment: str) -> int:
        """The highest offset + length that any attempt refers to; 0 when none does."""

    async def adopt(self, run: str, segment: str, pages: Sequence[ArchivedPage]) -> int:
        """Create a done request for each page of the segment that no attempt refers to, in a run
        that exists; returns how many. For `skep archive rebuild`."""
