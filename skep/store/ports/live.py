"""The store's contract for live lists. Used by `monitoring`; the rules of `store/ports` apply."""

from __future__ import annotations

from typing import Protocol

from skep.model.filter.checked import CheckedFilter
from skep.model.live import LiveRow


class LiveLists(Protocol):
    """Lists of requests, runs, jobs and agents, newest first, in few queries."""

    async def page(self, wanted: CheckedFilter, alive_after: float, limit: int) -> list[LiveRow]:
        """The first rows that match. Reads a bounded number of rows, so that a rare match may be
        missing. The data holds no settings, no definitions and no time that changes by itself.
        Raises InvalidInput for a filter that the store cannot evaluate."""
