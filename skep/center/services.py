"""Everything that an endpoint may use, built once per center. Assembly only."""

from __future__ import annotations

import asyncio
import platform
from dataclasses import dataclass
from functools import partial

from skep.center.agent_commands import Hub
from skep.center.agent_keys import AgentKeys
from skep.center.archive_check import ArchiveCheck
from skep.center.assembly.access import AccessAssembly, build_access, build_audit, build_secrets
from skep.center.assembly.live import LiveAssembly, build_live
from skep.center.assembly.logs import LogAssembly, build_logs
from skep.center.assembly.monitoring import MonitoringAssembly, build_monitoring
from skep.center.assembly.operations import (
    OperationAssembly,
    OperationNeeds,
    build_operations,
)
from skep.center.center_signals import CenterSignals
from skep.center.disk_space import DiskSpace, disk_space
from skep.center.ended_runs import EndedRuns
from skep.center.foundation import Foundation
from skep.center.gauges import Gauges
from skep.center.http.authentication import Auth
from skep.center.job_assembly import JobAssembly, JobNeeds, build_jobs
from skep.center.metrics import Metrics
from skep.center.notifier import build_notifier
from skep.center.placement_assembly import PlacementAssembly, build_placement
from skep.center.self_check import SelfCheck
from skep.center.unsent_results import UnsentResults
from skep.downloaders.schemes import known_kinds, known_schemes
from skep.fleet.roster import Roster
from skep.jobs.endings.notices import Notifier
from skep.jobs.endings.retention import Retention
from skep.jobs.intake import Intake, IntakeCalls
from skep.jobs.request_validation import Validator
from skep.jobs.runs.run_control import RunControl
from skep.lanes.dispatch import Dispatcher, follow_run
from skep.lanes.lease_calls import LeaseCalls
from skep.lanes.leases import Leases
from skep.lanes.reconcile_lanes import remove_targets
from skep.model.fleet.placement import run_target
from skep.model.hosts.politeness import Politeness
from skep.placement.placer import Placer
from skep.results.ingest import Ingest
from skep.runtime.clock import Clock
from skep.runtime.repair_counts import Repairs
from skep.why.explainer import Explainer

#: Schemes that the agents of this version can download.
#: Maximum number of stored bodies that are read at the same time.
BODY_READERS = 8
#: Seconds between two writes of heartbeats: all that arrived meanwhile share one transaction, so
#: that a thousand agents need a few transactions a second, and no heartbeat waits long.
HEARTBEATS_EVERY = 0.06


@dataclass(frozen=True, slots=True, kw_only=True)
class Services(Foundation):
    """One center's parts, by name: its foundation, and what is built on it."""

    auth: Auth
    #: Logins, login links and session cookies of users.
    people: AccessAssembly
    hub: Hub
    #: Commands to the processes of runs.
    control: RunControl
    unsent: UnsentResults
    metrics: Metrics
    #: The metrics of store and bus.
    gauges: Gauges
    #: Differences between records that were repaired here.
    repairs: Repairs
    #: Compares records that belong together.
    self_check: SelfCheck
    #: Keys with which agents encrypt their files, and which of their runs have ended.
    agent_keys: AgentKeys
    ended_runs: EndedRuns
    roster: Roster
    #: Which agents may work for which runs.
    placement: PlacementAssembly
    intake: Intake
    dispatcher: Dispatcher
    leases: Leases
    #: Answers agents that request blocks.
    lease_calls: LeaseCalls
    ingest: Ingest
    #: The rules for hosts.
    politeness: Politeness
    #: Signals to waiting callers and loops.
    signals: CenterSignals
    jobs: JobAssembly
    #: Bulk operations.
    operations: OperationAssembly
    #: Live updates.
    live: LiveAssembly
    #: Whether there is disk space.
    disk: DiskSpace
    #: Deletes expired records.
    retention: Retention
    #: Sends notices about the ends of runs.
    notifier: Notifier
    #: Figures over time and alerts.
    monitoring: MonitoringAssembly
    #: Explains what requests, runs and jobs wait for.
    why: Explainer
    #: Stored bodies that are being read; others wait.
    body_readers: asyncio.Semaphore
    #: Log lines: intake, search, budgets, export.
    logs: LogAssembly


def build(base: Foundation) -> Services:
    """Assemble a center; nothing is opened. Each part is complete when it is created."""
    settings, store, clock = base.settings, base.store, base.clock
    auth, audit, secrets = _auth(base), build_audit(base), build_secrets(base)
    disk, signals, metrics = _disk(base), CenterSignals.of(base), Metrics()
    repairs, politeness = Repairs(metrics.count_repairs), Politeness(settings.sites)
    hub, logs = Hub(base.bus, clock, base.name), build_logs(base, disk.check)
    roster = Roster(settings.center, store, clock, known_kinds(), beats_every=HEARTBEATS_EVERY)
    placer = Placer(settings.center, store, roster, clock, base.rng, signals.there_is_work)
    dispatcher = _dispatcher(base, signals, placer, politeness, repairs)
    control = _run_control(base, hub, roster, signals, dispatcher)
    placement = build_placement(base, hub, placer, roster, signals, control.moved)
    validator = Validator(known_schemes(), base.rng, known_kinds())
    monitoring = build_monitoring(base, roster, metrics, disk)
    calls = IntakeCalls(disk.check, monitoring.accepted, signals.dispatcher.request, control.moved)
    intake = Intake(store, validator, clock, calls, placement.allocator)
    needs = JobNeeds(validator, intake, auth, audit, placement, hub, control, logs, secrets)
    jobs = build_jobs(base, needs, signals.runs)
    leases = _leases(base, dispatcher, politeness)
    return Services(
        name=base.name,
        settings=settings,
        store=store,
        bus=base.bus,
        archive=base.archive,
        clock=clock,
        rng=base.rng,
        address=base.address,
        auth=auth,
        people=build_access(base, auth, audit, secrets),
        hub=hub,
        control=control,
        unsent=UnsentResults(store, clock),
        metrics=metrics,
        gauges=Gauges(store, base.bus, roster, metrics, clock),
        repairs=repairs,
        self_check=_self_check(base, repairs),
        agent_keys=AgentKeys(store),
        ended_runs=EndedRuns(store.runs),
        roster=roster,
        placement=placement,
        intake=intake,
        dispatcher=dispatcher,
        leases=leases,
        lease_calls=_lease_calls(leases, placement, signals, disk, monitoring, base.closing, clock),
        politeness=politeness,
        ingest=_ingest(base, politeness),
        signals=signals,
        disk=disk,
        retention=Retention(base.name, settings.keep, store, base.archive, clock),
        notifier=build_notifier(settings, store, clock, base.rng, secrets),
        closing=base.closing,
        jobs=jobs,
        monitoring=monitoring,
        operations=_operations(base, jobs, intake, dispatcher, roster, hub, signals),
        live=build_live(base, signals, base.closing, metrics),
        why=_explainer(base, politeness, jobs, disk),
        body_readers=asyncio.Semaphore(BODY_READERS),
        logs=logs,
    )


def _operations(
    base: Foundation,
    jobs: JobAssembly,
    intake: Intake,
    dispatcher: Dispatcher,
    roster: Roster,
    hub: Hub,
    signals: CenterSignals,
) -> OperationAssembly:
    needs = OperationNeeds(jobs, intake, dispatcher, roster, hub, signals)
    return build_operations(base, needs)


def _dispatcher(
    base: Foundation,
    signals: CenterSignals,
    placer: Placer,
    politeness: Politeness,
    repairs: Repairs,
) -> Dispatcher:
    return Dispatcher(
        base.settings.lanes,
        base.store,
        base.bus,
        base.clock,
        base.name,
        signals.there_is_work,
        politeness,
        host=platform.node(),
        placer=placer,
        repairs=repairs,
    )


def _run_control(
    base: Foundation, hub: Hub, roster: Roster, signals: CenterSignals, dispatcher: Dispatcher
) -> RunControl:
    return RunControl(
        base.name,
        base.store,
        base.bus,
        hub.send,
        roster,
        base.clock,
        base.rng,
        signals.wake_run,
        partial(follow_run, dispatcher),
    )


def _disk(base: Foundation) -> DiskSpace:
    return disk_space(base.name, base.settings, base.store, base.archive, base.clock)


def _auth(base: Foundation) -> Auth:
    center = base.settings.center
    return Auth(
        base.store,
        base.clock,
        enabled=center.auth,
        wrong_tokens=center.wrong_tokens,
        access=base.settings.access,
    )


def _self_check(base: Foundation, repairs: Repairs) -> SelfCheck:
    store, clock = base.store, base.clock

    async def withdraw(numbers: list[str]) -> None:
        targets = {run_target(int(number)) for number in numbers}
        await remove_targets(base.bus.lanes, targets)

    archive = ArchiveCheck(base.name, store, base.archive, clock, repairs)
    return SelfCheck(store, clock, repairs, withdraw, archive=archive)


def _leases(base: Foundation, dispatcher: Dispatcher, politeness: Politeness) -> Leases:
    lanes, every = base.settings.lanes, HEARTBEATS_EVERY
    return Leases(
        dispatcher, lanes, base.store, base.bus, base.clock, politeness, renew_every=every
    )


def _lease_calls(
    leases: Leases,
    placement: PlacementAssembly,
    signals: CenterSignals,
    disk: DiskSpace,
    monitoring: MonitoringAssembly,
    closing: asyncio.Event,
    clock: Clock,
) -> LeaseCalls:
    def leased(blocks: int) -> None:
        signals.dispatcher.request()  # there is room in the lanes
        monitoring.leased(blocks)

    return LeaseCalls(
        leases,
        signals.work,
        placement.placer,
        placement.roster,
        clock,
        closing,
        lambda: disk.stops_leasing,
        leased,
    )


def _ingest(base: Foundation, politeness: Politeness) -> Ingest:
    lanes, store, archive = base.settings.lanes, base.store, base.archive
    return Ingest(lanes, store, archive, base.clock, base.rng, politeness, together=True)


def _explainer(
    base: Foundation, politeness: Politeness, jobs: JobAssembly, disk: DiskSpace
) -> Explainer:
    restart_at = jobs.supervisor.restarts.get
    return Explainer(
        base.settings,
        base.store,
        base.bus,
        politeness,
        base.clock,
        restart_at,
        lambda: disk.stops_leasing,
    )
