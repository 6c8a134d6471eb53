"""What centers ask of a store about alerts and segments; the rules of `store/ports` hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from skep.model.archived_page import ArchivedPage


class Alerts(Protocol):
    """Asked by `lanes`: things that a person should see, such as a full lane."""

    async def raise_(self, kind: str, subject: str, detail: str, now: float) -> None:
        """One row per (kind, subject), with a count and the newest detail."""

    async def recent(self, limit: int) -> list[dict[str, Any]]:
        """Newest first."""


class Segments(Protocol):
    """Asked by the archive at start: where do the committed bytes of a segment end?"""

    async def committed_end(self, segment: str) -> int:
        """The highest offset + length that any attempt refers to; 0 when none does."""

    async def adopt(self, run: str, segment: str, pages: Sequence[ArchivedPage]) -> int:
        """Make a request that is done of each page of the segment that no attempt refers to,
        in a run that exists; how many they were. For `skep archive rebuild`."""
