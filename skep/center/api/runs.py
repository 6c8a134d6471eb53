"""Runs: opened, shown, paused, ended, counted.

Run by centers. Opening a run twice is opening it once; a change goes to the store first and is
then told to everybody who works for the run.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from skep.center.api.deliveries import DeliveryLine, line_of
from skep.center.api.names import RUN_NAMES, run_name
from skep.center.api.placement import SeatLine, seats_of
from skep.center.auth import Role
from skep.center.control import Reached
from skep.center.endpoint import Call, Endpoint
from skep.errors import Conflict, InvalidInput, NotEnoughAgents, NotFound, UnknownRun
from skep.jobs.intake import NewRun
from skep.lanes.dispatch import try_reconcile
from skep.model.figures import RunFigures
from skep.model.ledger import Ledger
from skep.model.run import AskedSettings, Run, without_secrets
from skep.model.states import RunState

#: Seconds for which an answer may be waited for.
WAIT_MAX = 60.0
VERBS = {
    "pause": RunState.PAUSED,
    "continue": RunState.RUNNING,
    "finish": RunState.FINISHED,
    "cancel": RunState.CANCELLED,
}


class Newest(msgspec.Struct):
    """Which runs to list: `limit` of them, made before a moment."""

    #: Number of runs at most, newest first.
    limit: Annotated[int, Meta(ge=1, le=1000)] = 50
    #: Only runs made before this time, in seconds since the epoch.
    before: Annotated[float, Meta(ge=0, le=1e15)] | None = None


class Runs(msgspec.Struct):
    """Newest first; ask again with `before=next` for older ones."""

    items: list[Run]
    next: float | None = None


class OpenRun(msgspec.Struct, forbid_unknown_fields=True):
    """What a caller says about a run that it opens; `{}` takes every default."""

    job: str = ""
    settings: AskedSettings = AskedSettings()


class RunView(msgspec.Struct):
    """A run with its ledger and its figures."""

    run: Run
    ledger: Ledger
    unaccounted: int
    figures: RunFigures
    #: The agents that were chosen for it; none when anybody may work for it.
    chosen: list[SeatLine] = msgspec.field(default_factory=list)
    #: How far the sinks of its job are with its items.
    deliveries: list[DeliveryLine] = msgspec.field(default_factory=list)


class Waiting(msgspec.Struct):
    """Seconds to wait until every process of the run has obeyed; 0 waits for nobody."""

    #: Seconds to wait until every process has acknowledged; 0 = answer at once.
    wait: Annotated[float, Meta(ge=0, le=WAIT_MAX)] = 0.0


class Steered(RunView):
    """A run that was told something, and the processes that it was told to."""

    reached: list[Reached] = msgspec.field(default_factory=list)


class Revived(msgspec.Struct):
    """How many dead requests wait again."""

    requests: int


async def list_runs(call: Call) -> Runs:
    """Newest first."""
    query: Newest = call.query
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
        await store.turns.ask(name, "restart")
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
    call.services.nudge.ring()
    return Revived(count)


async def _view(call: Call, run: Run) -> RunView:
    services = call.services
    # In this order: every answer that is in the figures is in the ledger, too.
    figures = await services.store.figures.read(run.id, services.clock.now())
    ledger = await services.store.ledgers.read(run.id)
    seats = await seats_of(call, run)
    sinks = [line_of(view) for view in await services.store.deliveries.of(run.id)]
    return RunView(without_secrets(run), ledger, ledger.unaccounted, figures, seats, sinks)


ENDPOINTS = (
    Endpoint(
        "GET",
        "/api/v1/runs",
        Role.VIEWER,
        list_runs,
        "List runs",
        gives=Runs,
        asks=Newest,
        tag="runs",
    ),
    Endpoint(
        "PUT",
        "/api/v1/runs/{run}",
        Role.OPERATOR,
        open_run,
        "Open a run",
        OpenRun,
        RunView,
        errors=(InvalidInput, NotEnoughAgents),
        tag="runs",
        parameters=RUN_NAMES,
        notes="Opening a run that is there gives it back as it is, with its first settings.",
    ),
    Endpoint(
        "GET",
        "/api/v1/runs/{run}",
        Role.VIEWER,
        show_run,
        "Show a run and its ledger",
        gives=RunView,
        errors=(InvalidInput, UnknownRun),
        tag="runs",
        parameters=RUN_NAMES,
        for_driver=True,
    ),
    Endpoint(
        "POST",
        "/api/v1/runs/{run}/revive",
        Role.OPERATOR,
        revive,
        "Send the dead requests of a run again",
        gives=Revived,
        errors=(InvalidInput, UnknownRun, Conflict),
        tag="runs",
        parameters=RUN_NAMES,
    ),
    Endpoint(
        "POST",
        "/api/v1/runs/{run}/restart",
        Role.OPERATOR,
        restart,
        "Start the process that drives a run anew",
        gives=Steered,
        asks=Waiting,
        errors=(InvalidInput, UnknownRun, Conflict),
        tag="runs",
        parameters=RUN_NAMES,
        notes="It loads the spider's code again, and the run goes on where it was.",
    ),
    Endpoint(
        "POST",
        "/api/v1/runs/{run}/{verb}",
        Role.OPERATOR,
        change_run,
        "Pause, continue, finish or cancel a run",
        gives=Steered,
        asks=Waiting,
        errors=(InvalidInput, UnknownRun, Conflict),
        tag="runs",
        parameters={**RUN_NAMES, "verb": {"enum": list(VERBS)}},
        for_driver=True,
    ),
)
