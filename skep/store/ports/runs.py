"""The store's contract for runs and their figures. The rules of `store/ports` apply."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from skep.model.jobs.job import RunLease
from skep.model.run import Run, RunSettings
from skep.model.run_figures import RunFigures
from skep.model.states import RunState


class Runs(Protocol):
    """Used by `jobs`."""

    async def create(self, run: Run) -> bool:
        """Store a run. False when one with this id exists; it is then left as it is."""

    async def get(self, run_id: str) -> Run:
        """Raises UnknownRun."""

    async def recent(self, limit: int, before: float | None = None) -> list[Run]:
        """Newest first."""

    async def settings_of(self, run_ids: Sequence[str]) -> dict[str, RunSettings]:
        """The settings of the runs of a lease, with named places; unknown ids are absent."""

    async def name_places(self, run_id: str, places: Collection[str]) -> None:
        """Add places that a user named, up to the limit of a run; raises UnknownRun."""

    async def relabel(self, run_id: str, add: Mapping[str, str], remove: Collection[str]) -> bool:
        """Add and remove labels; False when nothing changed. Raises UnknownRun, and InvalidInput
        for too many labels."""

    async def over(self, run_ids: Sequence[str]) -> list[str]:
        """Runs without work for agents: finished, cancelled, failed or unknown."""

    async def move(
        self,
        run_id: str,
        to: RunState,
        reason: str = "",
        now: float = 0.0,
        lease: RunLease | None = None,
    ) -> Run:
        """Change the state by the table in `model/states.py`, and store why; raises Conflict
        otherwise. A run that is in that state already is left as it is. A center that acts as
        the supervisor of a run passes its `lease`; raises LostLease when it has lost it."""


class Figures(Protocol):
    """The figures of a run, for display. Cheap for runs of any size."""

    async def read(self, run_id: str, now: float) -> RunFigures:
        """Counted with every report. Raises UnknownRun."""

    async def forget_rates(self, now: float) -> int:
        """Delete old counts that the rate is computed from."""
