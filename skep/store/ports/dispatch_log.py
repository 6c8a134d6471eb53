"""The store's contract for the dispatch log. Run by centers only.

The log is for display: no dispatch depends on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from skep.model.dispatch import DispatchRow


class Dispatches(Protocol):
    """The dispatch log, bounded by age and number."""

    async def add(self, rows: Sequence[DispatchRow]) -> None:
        """Store rows in their order."""

    async def recent(
        self, limit: int, before: int | None = None, run: str = "", kind: str = ""
    ) -> list[DispatchRow]:
        """Newest first, with ids below `before`; optionally of one run or kind."""

    async def forget(self, before: float, limit: int, kept: int | None = None) -> int:
        """Delete up to `limit` rows that are older, or beyond the `kept` newest; returns how
        many."""
