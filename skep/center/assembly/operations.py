"""Assembles bulk operations: which acts there are, and what each of them calls.

Run once when a center is built. Every act uses the function that also serves single objects;
nothing starts here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import msgspec

from skep.center.agent_commands import Hub
from skep.center.assembly.labels_and_exports import export_acts, label_acts
from skep.center.center_signals import CenterSignals
from skep.center.foundation import Foundation
from skep.center.job_assembly import JobAssembly
from skep.errors import Unavailable
from skep.fleet.roster import Roster
from skep.jobs.intake import Intake
from skep.jobs.runs.run_start import RunStarts
from skep.lanes.dispatch import Dispatcher, try_reconcile
from skep.model.states import RunState
from skep.operations.acts import Act, ActTraits, Batch, Registry, Resource
from skep.operations.kinds import EachAct, StoreAct
from skep.operations.planning import OperationPlanner
from skep.operations.worker import Worker
from skep.store.ports import Store
from skep.store.ports.operations import ActedPart, RequestAct
from skep.wire.filter.tables import AGENTS, JOBS, REQUESTS, RUNS
from skep.wire.messages import Command

#: Requests that one transaction changes, and that an operation changes per second at most.
REQUEST_BATCH = 2000
REQUEST_RATE = 9_000
RESOURCES = (
    Resource("requests", REQUESTS),
    Resource("failures", REQUESTS, "state:dead"),
    Resource("runs", RUNS),
    Resource("jobs", JOBS, "-state:deleted"),
    Resource("agents", AGENTS),
)
#: Runs whose revision is remembered as up to date.
REMEMBERED = 10_000


class RetryArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How dead requests are retried."""

    #: Use the job revision of the run's start, not the current one.
    old_revision: bool = False


@dataclass(frozen=True, slots=True)
class OperationNeeds:
    """Other parts of the center that acts use."""

    jobs: JobAssembly
    intake: Intake
    dispatcher: Dispatcher
    roster: Roster
    hub: Hub
    signals: CenterSignals


@dataclass(frozen=True, slots=True)
class OperationAssembly:
    """Acts, dry runs and starts, and the worker."""

    registry: Registry
    planner: OperationPlanner
    worker: Worker


def build_operations(base: Foundation, needs: OperationNeeds) -> OperationAssembly:
    """Build all parts; nothing is started."""
    settings, store, clock = base.settings, base.store, base.clock
    alive_after = settings.center.alive_after
    registry = Registry(RESOURCES, _acts(base, needs))
    seconds = settings.jobs.lease_seconds
    worker = Worker(base.name, store, registry, clock, seconds, alive_after)
    planner = OperationPlanner(store, registry, clock, alive_after, worker.wake)
    return OperationAssembly(registry, planner, worker)


def _acts(base: Foundation, needs: OperationNeeds) -> list[Act]:
    return [
        *_request_acts(base, needs, "requests"),
        *_request_acts(base, needs, "failures"),
        *_run_acts(base, needs),
        *_job_acts(base, needs),
        *_agent_acts(base, needs),
        *label_acts(base, needs.jobs.book),
        *export_acts(base),
    ]


# -- requests


def _request_acts(base: Foundation, needs: OperationNeeds, resource: str) -> list[Act]:
    cancels: RequestAct = "cancel" if resource == "requests" else "give_up"
    what = "open" if resource == "requests" else "dead"
    traits = partial(ActTraits, resource=resource, batch=REQUEST_BATCH, rate=REQUEST_RATE)
    retry = traits("retry", help="Retry dead requests.", arguments=RetryArguments)
    cancel = traits("cancel", help=f"Cancel {what} requests.", destroys=True)
    delete = traits(
        "delete", help="Delete dead, cancelled and expired requests of ended runs.", destroys=True
    )
    store, clock = base.store, base.clock
    revisions = _Revisions(store, needs.jobs.starts)
    dropped, woken = partial(_drop_blocks, needs.dispatcher), partial(_wake, needs.signals)
    return [
        StoreAct(retry, store, clock, "retry", revisions.update, woken),
        StoreAct(cancel, store, clock, cancels, after=dropped),
        StoreAct(delete, store, clock, "forget"),
    ]


class _Revisions:
    """Lets runs follow the current revision of their job, before requests are retried."""

    def __init__(self, store: Store, starts: RunStarts) -> None:
        self._store = store
        self._starts = starts
        self._known: set[tuple[int, str]] = set()

    async def update(self, batch: Batch) -> list[str]:
        """What the runs follow now, as notes."""
        if len(self._known) > REMEMBERED:
            self._known.clear()
        number, old = batch.operation.id, batch.arguments.old_revision
        notes = []
        for run in await self._store.targets.runs_of(batch.part.keys):
            if (number, run) not in self._known:
                revision = await self._starts.update_run(run, keep=old)
                self._known.add((number, run))
                if revision is not None:
                    notes.append(f"run {run} follows revision {revision} of its job")
        return notes


async def _wake(signals: CenterSignals, acted: ActedPart) -> None:
    if acted.changed:
        signals.dispatcher.request()


async def _drop_blocks(dispatcher: Dispatcher, acted: ActedPart) -> None:
    with suppress(Unavailable):  # otherwise the periodic self-check does it later
        await dispatcher.drop_ended(set(acted.blocks))


# -- runs, jobs and agents: one by one

Do = Callable[[str, Batch], Awaitable[object]]


def _each(base: Foundation, traits: ActTraits, do: Do) -> EachAct:
    return EachAct(traits, base.store, base.clock, base.settings.center.alive_after, do)


def _run_acts(base: Foundation, needs: OperationNeeds) -> list[Act]:
    traits = partial(ActTraits, resource="runs")
    rows = (
        (traits("pause", help="Pause runs."), RunState.PAUSED),
        (traits("continue", help="Continue paused, failed or finished runs."), RunState.RUNNING),
        (traits("finish", help="Finish runs successfully.", destroys=True), RunState.FINISHED),
        (traits("cancel", help="Cancel runs.", destroys=True), RunState.CANCELLED),
    )
    acts: list[Act] = [_each(base, row, partial(_move_run, needs, to)) for row, to in rows]
    revive = traits("retry", help="Retry the dead requests of runs.")
    return [*acts, _each(base, revive, partial(_revive_run, base.store, needs.signals))]


async def _move_run(needs: OperationNeeds, to: RunState, run: str, batch: Batch) -> None:
    reason = "" if to is RunState.RUNNING else f"{to} by operation {batch.operation.id}"
    await needs.intake.move(run, to, reason)
    if to is RunState.RUNNING:
        await try_reconcile(needs.dispatcher)


async def _revive_run(store: Store, signals: CenterSignals, run: str, _: Batch) -> None:
    await store.requests.revive(run)
    signals.dispatcher.request()


def _job_acts(base: Foundation, needs: OperationNeeds) -> list[Act]:
    traits, book = partial(ActTraits, resource="jobs"), needs.jobs.book

    async def enable(job: str, batch: Batch) -> None:
        await book.switch(job, batch.operation.asked.creator, enabled=True)

    async def disable(job: str, batch: Batch) -> None:
        await book.switch(job, batch.operation.asked.creator, enabled=False)

    async def delete(job: str, batch: Batch) -> None:
        await book.delete(job, None, batch.operation.asked.creator)

    return [
        _each(base, traits("enable", help="Enable jobs."), enable),
        _each(base, traits("disable", help="Disable jobs; active runs continue."), disable),
        _each(
            base, traits("delete", help="Delete jobs; active runs continue.", destroys=True), delete
        ),
    ]


def _agent_acts(base: Foundation, needs: OperationNeeds) -> list[Act]:
    traits = partial(ActTraits, resource="agents", admin=True)
    rows = (
        (traits("enable", help="Let agents get work."), (True, "")),
        (traits("disable", help="Give agents no more work."), (False, "")),
        (
            traits("cordon", help="Give agents no more work; they are cordoned."),
            (False, "cordoned"),
        ),
    )
    return [_each(base, row, partial(_set_agent, needs, *to)) for row, to in rows]


async def _set_agent(
    needs: OperationNeeds, enabled: bool, aside: str, agent: str, _: Batch
) -> None:
    await needs.roster.enable(agent, enabled, aside)
    if enabled:
        await needs.hub.send(agent, Command("wake"))
