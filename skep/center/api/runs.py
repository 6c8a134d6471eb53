"""Runs: opened, shown, paused, ended, counted.

Run by centers. Opening a run twice is opening it once; a change goes to the store first and is
then told to everybody who works for the run.
"""

from __future__ import annotations

from skep.center.api.deliveries import line_of
from skep.center.api.path_names import RUN_NAMES, run_name
from skep.center.api.placement import slots_of
from skep.center.http.authentication import Role
from skep.center.http.endpoint import Call, Endpoint
from skep.errors import Conflict, InvalidInput, NotEnoughAgents, NotFound, UnknownRun
from skep.lanes.dispatch import try_reconcile
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
    """Newest first."""
    query: RunPage = call.query
    found = await call.services.store.runs.recent(query.limit, query.before)
    more = found[-1].created_at if len(found) >= query.limit else None
    return Runs([without_secrets(run) for run in found], more)


async def open_run(call: Call) -> RunView:
    """Open a run under a name of the caller's. Doing it twice changes nothing."""
    asked: OpenRun = call.body
    new = NewRun(asked.job, asked.settings.checked())
    wait = call.services.settings.center.allocate_wait
    run, _ = await call.services.intake.open_run(run_name(call.path["run"]), new, wait)
    return await _view(call, run)


async def show_run(call: Call) -> RunView:
    """A run and where its requests are."""
    return await _view(call, await call.services.store.runs.get(run_name(call.path["run"])))


async def change_run(call: Call) -> Steered:
    """pause, continue, finish or cancel."""
    verb = VERBS.get(call.path["verb"])
    if verb is None:
        known = ", ".join(VERBS)
        raise NotFound(f"{call.path['verb'][:50]!r} is none of {known}, restart, revive")
    name = run_name(call.path["run"])
    reason = "" if verb is RunState.RUNNING else f"{verb} by message"
    control = call.services.control
    with control.listening([name]) as ear:
        # What a driver does itself it need not be told.
        if call.who.role is not Role.DRIVER:
            await control.expect(ear, name, verb)
        run = await call.services.intake.move(name, verb, reason)
        if verb is RunState.RUNNING:
            await try_reconcile(call.services.dispatcher)
        return await _steered(call, run, await ear.gathered(call.query.wait))


async def restart(call: Call) -> Steered:
    """Ask the process that drives a run to end and to start anew; the run goes on."""
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
    """Send every dead request of a run again."""
    count = await call.services.store.requests.revive(run_name(call.path["run"]))
    call.services.signals.dispatcher.request()
    return Revived(count)


async def _view(call: Call, run: Run) -> RunView:
    services = call.services
    # In this order: every answer that is in the figures is in the ledger, too.
    figures = await services.store.figures.read(run.id, services.clock.now())
    ledger = await services.store.ledgers.read(run.id)
    seats = await slots_of(call, run)
    sinks = [line_of(view) for view in await services.store.deliveries.of(run.id)]
    return RunView(without_secrets(run), ledger, ledger.unaccounted, figures, seats, sinks)


ENDPOINTS = (
    Endpoint(LIST_RUNS, Role.VIEWER, list_runs, "List runs", tag="runs"),
    Endpoint(
        OPEN_RUN,
        Role.OPERATOR,
        open_run,
        "Open a run",
        errors=(InvalidInput, NotEnoughAgents),
        tag="runs",
        parameters=RUN_NAMES,
        notes="Opening a run that is there gives it back as it is, with its first settings.",
    ),
    Endpoint(
        GET_RUN,
        Role.VIEWER,
        show_run,
        "Show a run and its ledger",
        errors=(InvalidInput, UnknownRun),
        tag="runs",
        parameters=RUN_NAMES,
        for_driver=True,
    ),
    Endpoint(
        REVIVE_RUN,
        Role.OPERATOR,
        revive,
        "Send the dead requests of a run again",
        errors=(InvalidInput, UnknownRun, Conflict),
        tag="runs",
        parameters=RUN_NAMES,
    ),
    Endpoint(
        RESTART_RUN,
        Role.OPERATOR,
        restart,
        "Start the process that drives a run anew",
        errors=(InvalidInput, UnknownRun, Conflict),
        tag="runs",
        parameters=RUN_NAMES,
        notes="It loads the spider's code again, and the run goes on where it was.",
    ),
    Endpoint(
        CHANGE_RUN,
        Role.OPERATOR,
        change_run,
        "Pause, continue, finish or cancel a run",
        errors=(InvalidInput, UnknownRun, Conflict),
        tag="runs",
        parameters={**RUN_NAMES, "verb": {"enum": list(VERBS)}},
        for_driver=True,
    ),
)
