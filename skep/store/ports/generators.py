"""The store's contract for generators. Used by `jobs`; the rules of `store/ports` apply."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from skep.model.jobs.generator_progress import Counts, Generation, GenerationState, Taken, Window
from skep.model.jobs.job import RunLease
from skep.store.ports.requests import RequestRow


class Generations(Protocol):
    """The progress of generators in runs, and the URIs that jobs took recently."""

    async def begin(self, new: Generation, lease: RunLease | None = None) -> Generation:
        """Start it, or restart it: `starts` grows by one, and calls from an earlier start are
        refused from then on. A generator that is done stays as it is. Raises LostLease when
        `lease` is given and another center has taken the run."""

    async def take(
        self,
        begun: Generation,
        rows: Sequence[RequestRow],
        counts: Counts,
        window: Window | None,
        now: float,
    ) -> Taken:
        """Accept requests and store the counts, both or neither.

        With a window, requests that an earlier run of the job took, and whose time is not over,
        are left out, and the others are remembered. Raises StaleToken when the generator was
        restarted, UnknownRun, and Conflict when the run has ended.
        """

    async def end(
        self, begun: Generation, state: GenerationState, detail: str, counts: Counts
    ) -> bool:
        """False when it was restarted meanwhile."""

    async def of(self, run_id: str) -> list[Generation]:
        """The generators of a run, in the order of the job's document."""

    async def forget(self, now: float, limit: int) -> int:
        """Delete URIs whose time is over, at most `limit`; returns how many."""
