"""What the generators of a run did.

Run by centers, from what the store counted. Reading starts no generator.
"""

from __future__ import annotations

import msgspec

from skep.center.api.names import RUN_NAMES, run_name
from skep.center.auth import Role
from skep.center.endpoint import Call, Endpoint
from skep.errors import InvalidInput, UnknownRun
from skep.model.generation import GenerationState


class GeneratorView(msgspec.Struct):
    """One generator of a run, with its figures."""

    name: str
    kind: str
    state: GenerationState
    #: How often it was begun.
    starts: int
    yielded: int
    #: New to the run, and to the window of its job.
    taken: int
    #: Had been there before.
    known: int
    #: Of those, how many an earlier run took inside the window.
    recent: int
    #: Not valid, and left out.
    bad: int
    seconds: float
    #: Why it failed, or the last URI that was not valid.
    detail: str


class RunGenerators(msgspec.Struct):
    """In the order of the job's document."""

    items: list[GeneratorView]


async def run_generators(call: Call) -> RunGenerators:
    """The generators of a run and their figures."""
    run = await call.services.store.runs.get(run_name(call.path["run"]))
    found = await call.services.store.generations.of(run.id)
    names = GeneratorView.__struct_fields__
    return RunGenerators([GeneratorView(*(getattr(one, n) for n in names)) for one in found])


ENDPOINTS = (
    Endpoint(
        "GET",
        "/api/v1/runs/{run}/generators",
        Role.VIEWER,
        run_generators,
        "Show what the generators of a run did",
        gives=RunGenerators,
        errors=(InvalidInput, UnknownRun),
        tag="runs",
        parameters=RUN_NAMES,
    ),
)
