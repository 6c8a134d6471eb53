"""Checks that the objects of a call are inside the scope of its caller. Run by centers only.

The only place that decides it for single objects; lists get the condition of
`model/filter/scoped.py`. A caller without a scope may reach everything that its role allows. A
caller with a scope reaches only endpoints that declare how their objects are scoped; all others
are refused. An object outside the scope is answered like one that does not exist.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

from skep.center.api.agent_names import unknown_agent
from skep.center.api.path_names import job_name_in, number, run_name
from skep.center.http.endpoint import Call, Endpoint, Scoping
from skep.errors import (
    Conflict,
    Forbidden,
    NotEnoughAgents,
    UnknownJob,
    UnknownRun,
)
from skep.model.filter.checked import CheckedFilter, CheckedTerm, Match, Pattern
from skep.model.filter.scoped import within
from skep.model.fleet.agent import AgentView
from skep.model.operations import Operation
from skep.model.people.scope import Scope
from skep.model.run import Run
from skep.model.unknown_objects import (
    unknown_block,
    unknown_job,
    unknown_operation,
    unknown_request,
    unknown_run,
)

_SHOWN = 5


async def check_scope(call: Call, row: Endpoint) -> None:
    """Raises Forbidden for an endpoint that is not for callers with a scope, and the error of an
    unknown object for one outside of it."""
    if not call.who.scope:
        return
    check = _CHECKS.get(row.scoped)
    if check is None:
        raise Forbidden(f"{_limited(call.who.scope)}; only callers without a scope may do this")
    await check(call)


def _limited(scope: Scope) -> str:
    more = ", ..." if len(scope.labels) > _SHOWN else ""
    labels = ", ".join(scope.labels[:_SHOWN])
    return f"your scope is limited to objects with the labels {labels}{more}"


# -- single objects


async def check_run(call: Call, name: str) -> None:
    """Raises UnknownRun for a run that does not exist or is outside."""
    scope = call.who.scope
    if scope and not scope.covers((await call.services.store.runs.get(name)).labels):
        raise unknown_run(name)


async def check_job(call: Call, name: str) -> None:
    """Raises UnknownJob for a job that does not exist or is outside."""
    scope = call.who.scope
    if scope and not scope.covers((await call.services.store.jobs.get(name)).job.labels):
        raise unknown_job(name)


async def _run(call: Call) -> None:
    await check_run(call, run_name(call.path.get("run") or call.path["identity"]))


async def _job(call: Call) -> None:
    await check_job(call, job_name_in(call.path["job"]))


async def _request(call: Call) -> None:
    wanted = number(call.path["request"])
    run = (await call.services.store.requests.get(wanted)).run
    if run not in await runs_inside(call, [run]):
        raise unknown_request(wanted)


async def _block(call: Call) -> None:
    wanted = number(call.path["block"])
    run = (await call.services.store.blocks.get(wanted)).run
    if run not in await runs_inside(call, [run]):
        raise unknown_block(wanted)


async def _operation(call: Call) -> None:
    wanted = number(call.path["operation"])
    if not operation_inside(call, await call.services.store.operations.get(wanted)):
        raise unknown_operation(wanted)


async def _agent(call: Call) -> None:
    """Resolves a name among the agents in scope: others must not make it ambiguous."""
    text = call.path["agent"]
    views = agents_in_scope(call, await call.services.roster.refresh())
    found = [view.id for view in views if view.id == text]
    found = found or [view.id for view in views if view.registration.name == text]
    if len(found) != 1:
        raise unknown_agent(text)
    call.path["agent"] = found[0]


async def _no_objects(_call: Call) -> None:
    """The endpoint shows no objects, or only those of the caller, or filters them itself."""


_CHECKS: dict[Scoping, Callable[[Call], Awaitable[None]]] = {
    Scoping.OWN: _no_objects,
    Scoping.FILTERED: _no_objects,
    Scoping.MADE: _no_objects,
    Scoping.AGENT: _agent,
    Scoping.RUN: _run,
    Scoping.JOB: _job,
    Scoping.REQUEST: _request,
    Scoping.BLOCK: _block,
    Scoping.OPERATION: _operation,
}


# -- several objects


def agents_in_scope(call: Call, views: list[AgentView]) -> list[AgentView]:
    """Those that the caller may see."""
    scope = call.who.scope
    return [view for view in views if scope.covers(view.registration.labels)]


async def runs_inside(call: Call, names: Iterable[str]) -> set[str]:
    """Those of the runs that exist and that the caller may see."""
    texts = tuple(Pattern(Match.WHOLE, name) for name in dict.fromkeys(names))
    if not texts:
        return set()
    wanted = CheckedFilter("runs", (CheckedTerm(("id",), texts),), call.services.clock.now())
    scoped = within(wanted, call.who.scope)
    found = await call.services.store.lists.find(scoped, None, len(texts))
    return {run.id for run in found.items}


def operation_inside(call: Call, operation: Operation) -> bool:
    """Whether the filter of the operation can only have found objects in the scope."""
    return call.services.operations.registry.is_within(operation, call.who.scope)


# -- new objects


def check_labels(call: Call, labels: Mapping[str, str], what: str) -> None:
    """Raises Forbidden for a new object that its maker could not see."""
    scope = call.who.scope
    if not scope.covers(labels):
        raise Forbidden(
            f"{_limited(scope)}; give {what} one of them (`labels`), and no other value of it"
        )


async def check_run_name(call: Call, name: str) -> None:
    """Raises Conflict when a run outside the scope has the name of a new run."""
    try:
        await check_run(call, name)
    except UnknownRun:
        if await _exists(call.services.store.runs.get(name)):
            raise _taken("run", name) from None


async def check_job_name(call: Call, name: str) -> None:
    """Raises Conflict when a job outside the scope has the name of a new job, or of a new run's
    job."""
    try:
        await check_job(call, name)
    except UnknownJob:
        if await _exists(call.services.store.jobs.get(name)):
            raise _taken("job", name) from None


async def _exists(found: Awaitable[object]) -> bool:
    try:
        await found
    except (UnknownRun, UnknownJob):
        return False
    return True


@contextmanager
def without_agents(call: Call) -> Iterator[None]:
    """An error that lists agents which do not fit says less to a caller with a scope."""
    try:
        yield
    except NotEnoughAgents:
        if not call.who.scope:
            raise
        raise NotEnoughAgents(
            "too few agents are available for the placement; try again later, or ask an admin"
        ) from None


def check_made(call: Call, run: Run) -> None:
    """Raises Conflict when another caller has made a run of this name meanwhile."""
    if not call.who.scope.covers(run.labels):
        raise _taken("run", run.id)


def _taken(what: str, name: str) -> Conflict:
    return Conflict(f"the name {name!r} is not available for a {what}; choose another one")
