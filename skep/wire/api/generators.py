"""The generators of a run: types and routes."""

from __future__ import annotations

import msgspec

from skep.model.jobs.generator_progress import GenerationState
from skep.wire.api.caller import Resource
from skep.wire.api.route import Route


class GeneratorView(msgspec.Struct):
    """One generator of a run, with its figures."""

    name: str
    kind: str
    state: GenerationState
    #: Number of starts.
    starts: int
    yielded: int
    #: Requests that were new to the run, and to the window of its job.
    taken: int
    #: Requests that were known before.
    known: int
    #: Of those, requests that an earlier run took within the window.
    recent: int
    #: Not valid, and left out.
    bad: int
    seconds: float
    #: Why it failed, or the last URI that was not valid.
    detail: str


class RunGenerators(msgspec.Struct):
    """In the order of the job's document."""

    items: list[GeneratorView]


LIST_RUN_GENERATORS = Route(
    "list_run_generators", "GET", "/api/v1/runs/{run}/generators", RunGenerators
)


class GeneratorsClient(Resource):
    """Calls the routes of this file."""

    async def of_run(self, run: str) -> RunGenerators:
        """Show what the generators of a run did."""
        return await self._caller.call(LIST_RUN_GENERATORS, run)
