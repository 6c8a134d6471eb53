"""Explains why something does not run: what it waits for, and what ends the wait.

Run by centers: a few short reads, then pure functions. It never changes anything.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Any

from skep.center.api.hosts import HOSTS, host_name
from skep.center.api.jobs import JOB_NAMES, job_name
from skep.center.api.path_names import NUMBERS, RUN_NAMES, number, run_name
from skep.center.http.authentication import Role
from skep.center.http.endpoint import Call, Endpoint, Scoping
from skep.center.http.scoping import agents_in_scope, runs_inside
from skep.errors import InvalidInput, NotFound, SkepError, UnknownBlock, UnknownJob, UnknownRun
from skep.model.wait_reasons import Why
from skep.why.scoped import named_runs, without_others
from skep.wire.api.route import Route
from skep.wire.api.why import EXPLAIN_BLOCK, EXPLAIN_JOB, EXPLAIN_REQUEST, EXPLAIN_RUN, EXPLAIN_SITE

_NOTES = (
    "Reasons are listed most decisive first, each with a stable `code`, a sentence, what ends the "
    "wait, `until` if the time is known, commands that help, and the facts behind the sentence. "
    "The answer takes a few short reads, independent of the size of the store."
)


async def why_request(call: Call) -> Why:
    """What a request waits for, or how it ended."""
    return _told(call, await call.services.why.request(number(call.path["request"])))


async def why_block(call: Call) -> Why:
    """What a block waits for, or how it ended."""
    return _told(call, await call.services.why.block(number(call.path["block"])))


async def why_run(call: Call) -> Why:
    """What a run waits for, or how it ended."""
    return _told(call, await call.services.why.run(run_name(call.path["run"])))


async def why_job(call: Call) -> Why:
    """Why a job does not run, or when it will."""
    found = await call.services.why.job(job_name(call))
    if not call.who.scope:
        return found
    runs = named_runs(found)
    return _told(call, found, runs - await runs_inside(call, runs))


def _told(call: Call, found: Why, runs: AbstractSet[str] = frozenset()) -> Why:
    """For a caller with a scope without what is shared; `runs` are those outside of it."""
    if not call.who.scope:
        return found
    agents = agents_in_scope(call, call.services.roster.views)
    return without_others(found, {view.id for view in agents}, runs)


async def why_site(call: Call) -> Why:
    """What requests to a host wait for."""
    return await call.services.why.site(host_name(call))


_PARAMETERS = {**NUMBERS, **RUN_NAMES, **JOB_NAMES, **HOSTS}


def _row(
    route: Route[Why], handler: Any, scoped: Scoping, summary: str, *errors: type[SkepError]
) -> Endpoint:
    return Endpoint(
        route,
        Role.VIEWER,
        handler,
        summary,
        errors=(InvalidInput, *errors),
        tag="why",
        parameters=_PARAMETERS,
        notes=_NOTES,
        scoped=scoped,
    )


ENDPOINTS = (
    _row(EXPLAIN_REQUEST, why_request, Scoping.REQUEST, "Why a request is not done", NotFound),
    _row(EXPLAIN_BLOCK, why_block, Scoping.BLOCK, "Why a block is not done", UnknownBlock),
    _row(EXPLAIN_RUN, why_run, Scoping.RUN, "Why a run does not continue", UnknownRun),
    _row(EXPLAIN_JOB, why_job, Scoping.JOB, "Why a job does not run", UnknownJob),
    _row(EXPLAIN_SITE, why_site, Scoping.GLOBAL, "Why no requests are sent to a host"),
)
