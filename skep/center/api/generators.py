"""Figures of the generators of a run.

Run by centers, from the counts in the store. Reading never starts a generator.
"""

from __future__ import annotations

from skep.center.api.path_names import RUN_NAMES, run_name
from skep.center.http.authentication import Role
from skep.center.http.endpoint import Call, Endpoint, Scoping
from skep.errors import InvalidInput, UnknownRun
from skep.wire.api.generators import LIST_RUN_GENERATORS, GeneratorView, RunGenerators


async def run_generators(call: Call) -> RunGenerators:
    """The generators of a run and their figures."""
    run = await call.services.store.runs.get(run_name(call.path["run"]))
    found = await call.services.store.generations.of(run.id)
    names = GeneratorView.__struct_fields__
    return RunGenerators([GeneratorView(*(getattr(one, n) for n in names)) for one in found])


ENDPOINTS = (
    Endpoint(
        LIST_RUN_GENERATORS,
        Role.VIEWER,
        run_generators,
        "Show the generators of a run and their figures",
        errors=(InvalidInput, UnknownRun),
        tag="runs",
        scoped=Scoping.RUN,
        parameters=RUN_NAMES,
    ),
)
