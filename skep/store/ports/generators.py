"""What `jobs` asks of a store about generators; the general promises stand in
`store/ports`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from skep.model.jobs.generator_progress import Counts, Generation, GenerationState, Taken, Window
from skep.model.jobs.job import RunLease
from skep.store.ports.requests import RequestRow


class Generations(Protocol):
    """What generators did in runs, and which URIs jobs took not long ago."""

    async def begin(self, new: Generation, lease: RunLease | None = None) -> Generation:
        """Begin it, or begin it again: `starts` is one more, and everybody who speaks for an
        older beginning is not heard any more. One that is done stays as it is. Raises
        LostLease when `lease` is given and another center has taken the run."""

    async def take(
        self,
        begun: Generation,
        rows: Sequence[RequestRow],
        counts: Counts,
        window: Window | None,
        now: float,
    ) -> Taken:
        """Accept requests and note the counts, both or neither.

        With a window, requests that an earlier run of the job took, and whose time is not
        over, are left out, and the others are remembered. Raises StaleToken when it was
        begun again, UnknownRun, and Conflict when the run has ended.
        """

    async def end(
        self, begun: Generation, state: GenerationState, detail: str, counts: Counts
    ) -> bool:
        """False when it was begun again meanwhile."""

    async def of(self, run_id: str) -> list[Generation]:
        """Of a run, in the order of the job's document."""

    async def forget(self, now: float, limit: int) -> int:
        """Forget URIs whose time is over, at most `limit`; returns how many."""
