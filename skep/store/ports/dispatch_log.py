"""What the dispatcher asks of a store for its log. Run by centers only.

The log is for people: what is dispatched never depends on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from skep.model.dispatch import DispatchRow


class Dispatches(Protocol):
    """The dispatch log, bounded by age and number."""

    async def add(self, rows: Sequence[DispatchRow]) -> None:
        """Keep rows in their order."""

    async def recent(
        self, limit: int, before: int | None = None, run: str = "", kind: str = ""
    ) -> list[DispatchRow]:
        """Newest first, with ids below `before`; of one run or kind when it is named."""

    async def forget(self, before: float, limit: int, kept: int | None = None) -> int:
        """Delete up to `limit` rows that are older, or beyond the `kept` newest; returns how
        many."""
