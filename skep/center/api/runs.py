"""Runs: open, show, pause, end and count them.

Run by centers. Opening a run twice has the effect of opening it once. A change is written to
the store first and then sent to every process that works for the run.
"""

from __future__ import annotations

from skep.center.api.deliveries import line_of
from skep.center.api.listing import asks_list, between, listed
from skep.center.api.path_names import RUN_NAMES, job_name_in, run_name
from skep.center.api.placement import slots_of
from skep.center.http.authentication import Role
from skep.center.http.endpoint import Call, Endpoint, Scoping
from skep.center.http.scoping import (
    check_job_name,
    check_labels,
    check_made,
    check_run_name,
    without_agents,
)
from skep.errors import Conflict, InvalidInput, NotEnoughAgents, NotFound, UnknownRun
from skep.lanes.dispatch import try_reconcile
from skep.model.filter.checked import CheckedTerm
from skep.model.run import NewRun, Run, without_secrets
from skep.model.states import RunState
from skep.wire.api.runs import (
    CHANGE_RUN,
    GET_RUN,
    LIST_RUNS,
    OPEN_RUN,
    RESTART_RUN,
    REVIVE_RUN,
    OpenRun,
    Reached,
    Revived,
    RunPage,
    Runs,
    RunView,
    Steered,
)

VERBS = {
    "pause": RunState.PAUSED,
    "continue": RunState.RUNNING,
    "finish": RunState.FINISHED,
    "cancel": RunState.CANCELLED,
}


async def list_runs(call: Call) -> Runs:
    """Runs, newest first."""
    query: RunPage = call.query
    if asks_list(call):
        items, more = await listed(call, "runs", *_before(query.before))
        return Runs([without_secrets(run) for run in items], **more)
    found = await call.services.store.runs.recent(query.limit, query.before)
    older = found[-1].created_at if len(found) >= query.limit else None
    return Runs([without_secrets(run) for run in found], older)


def _before(moment: float | None) -> list[CheckedTerm]:
    return [] if moment is None else [between("created", None, moment)]


async def open_run(call: Call) -> RunView:
    """Open a run under the caller's name for it. Doing it twice changes nothing."""
    asked: OpenRun = call.body
    new = NewRun(asked.job, asked.settings.checked(), asked.labels)
    return await _view(call, await opened(call, run_name(call.path["run"]), new))


async def opened(call: Call, name: str, new: NewRun) -> Run:
    """The run of this name, new or not. Raises Forbidden and Conflict for what is outside the
    scope of the caller."""
    if call.who.scope:
        check_labels(call, new.labels, "the run")
        await check_run_name(call, name)
        await check_job_name(call, job_name_in(new.job) if new.job else name)
    wait = call.services.settings.center.allocate_wait
    with without_agents(call):
        run, _ = await call.services.intake.open_run(name, new, wait)
    check_made(call, run)
    return run


async def show_run(call: Call) -> RunView:
    """A run and the states of its requests."""
    return await _view(call, await call.services.store.runs.get(run_name(call.path["run"])))


async def change_run(call: Call) -> Steered:
    """Pause, continue, finish or cancel a run."""
    verb = VERBS.get(call.path["verb"])
    if verb is None:
        known = ", ".join(VERBS)
        raise NotFound(
            f"{call.path['verb'][:50]!r} is not an action; use one of {known}, restart, revive"
        )
    name = run_name(call.path["run"])
    reason = "" if verb is RunState.RUNNING else f"{verb} by message"
    control = call.services.control
    with control.listening([name]) as ear:
        # A driver needs no command for what it does itself.
        if call.who.role is not Role.DRIVER:
            await control.expect(ear, name, verb)
        run = await call.services.intake.move(name, verb, reason)
        if verb is RunState.RUNNING:
            await try_reconcile(call.services.dispatcher)
        return await _steered(call, run, await ear.gathered(call.query.wait))


async def restart(call: Call) -> Steered:
    """Ask the process that drives a run to restart; the run continues."""
    name = run_name(call.path["run"])
    control, store = call.services.control, call.services.store
    with control.listening([name]) as ear:
        await control.expect(ear, name, None)
        await store.checkpoints.ask(name, "restart")
        await control.look_again(name)
        reached = await ear.gathered(call.query.wait)
    return await _steered(call, await store.runs.get(name), reached)


async def _steered(call: Call, run: Run, reached: list[Reached]) -> Steered:
    view = await _view(call, run)
    return Steered(
        view.run,
        view.ledger,
        view.unaccounted,
        view.figures,
        view.chosen,
        view.deliveries,
        reached,
    )


async def revive(call: Call) -> Revived:
    """Retry every dead request of a run."""
    count = await call.services.store.requests.revive(run_name(call.path["run"]))
    call.services.signals.dispatcher.request()
    return Revived(count)


async def _view(call: Call, run: Run) -> RunView:
    services = call.services
    # In this order, so that every answer that is in the figures is also in the ledger.
    figures = await services.store.figures.read(run.id, services.clock.now())
    ledger = await services.store.ledgers.read(run.id)
    seats = await slots_of(call, run)
    sinks = [line_of(view) for view in await services.store.deliveries.of(run.id)]
    return RunView(without_secrets(run), ledger, ledger.unaccounted, figures, seats, sinks)


ENDPOINTS = (
    Endpoint(
        LIST_RUNS,
        Role.VIEWER,
        list_runs,
        "List runs",
        errors=(InvalidInput,),
        tag="runs",
        scoped=Scoping.FILTERED,
    ),
    Endpoint(
        OPEN_RUN,
        Role.OPERATOR,
        open_run,
        "Open a run",
        errors=(InvalidInput, NotEnoughAgents),
        tag="runs",
        parameters=RUN_NAMES,
        scoped=Scoping.MADE,
        notes="Opening an existing run returns it unchanged, with its first settings.",
    ),
    Endpoint(
        GET_RUN,
        Role.VIEWER,
        show_run,
        "Show a run and its ledger",
        errors=(InvalidInput, UnknownRun),
        tag="runs",
        scoped=Scoping.RUN,
        parameters=RUN_NAMES,
        for_driver=True,
    ),
    Endpoint(
        REVIVE_RUN,
        Role.OPERATOR,
        revive,
        "Retry the dead requests of a run",
        errors=(InvalidInput, UnknownRun, Conflict),
        tag="runs",
        scoped=Scoping.RUN,
        parameters=RUN_NAMES,
    ),
    Endpoint(
        RESTART_RUN,
        Role.OPERATOR,
        restart,
        "Restart the process that drives a run",
        errors=(InvalidInput, UnknownRun, Conflict),
        tag="runs",
        scoped=Scoping.RUN,
        parameters=RUN_NAMES,
        notes="The new process loads the spider's code again, and the run continues where it was.",
    ),
    Endpoint(
        CHANGE_RUN,
        Role.OPERATOR,
        change_run,
        "Pause, continue, finish or cancel a run",
        errors=(InvalidInput, UnknownRun, Conflict),
        tag="runs",
        scoped=Scoping.RUN,
        parameters={**RUN_NAMES, "verb": {"enum": list(VERBS)}},
        for_driver=True,
    ),
)
