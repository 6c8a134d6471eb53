"""Everything that an endpoint may use, built once per center. Assembly only."""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from random import Random

from skep.archive.ports import Archive
from skep.bus.ports import Bus
from skep.center.agent_commands import Hub
from skep.center.agent_keys import AgentKeys
from skep.center.archive_check import ArchiveCheck
from skep.center.disk_space import DiskSpace, disk_space
from skep.center.dispatcher_tasks import DispatcherTask
from skep.center.ended_runs import EndedRuns
from skep.center.gauges import Gauges
from skep.center.http.authentication import Auth
from skep.center.job_assembly import JobAssembly, build_jobs
from skep.center.long_poll import LongPolls
from skep.center.metrics import Metrics
from skep.center.notifier import build_notifier
from skep.center.placement_assembly import PlacementAssembly, build_placement
from skep.center.run_control import RunControl
from skep.center.self_check import SelfCheck
from skep.center.unsent_results import UnsentResults
from skep.downloaders.schemes import known_kinds, known_schemes
from skep.fleet.roster import Roster
from skep.jobs.endings.notices import Notifier
from skep.jobs.endings.retention import Retention
from skep.jobs.intake import Intake, IntakeCalls
from skep.jobs.request_validation import Validator
from skep.lanes.dispatch import Dispatcher, follow_run
from skep.lanes.lane_check import remove_targets
from skep.lanes.leases import Leases
from skep.model.block import Leased
from skep.model.downloader_kinds import HTTP
from skep.model.fleet.placement import run_target
from skep.model.hosts.politeness import Politeness
from skep.model.run import Run
from skep.results.ingest import Ingest
from skep.runtime.clock import Clock
from skep.runtime.repair_counts import Repairs
from skep.runtime.signals import Signal, WakeUp
from skep.settings import Settings
from skep.store.ports import Store
from skep.why.explainer import Explainer

#: Schemes that the agents of this version can download.
SCHEMES = HTTP.schemes
#: Stored bodies that are read at the same time.
BODY_READERS = 8
#: Seconds from one writing of heartbeats to the next: all that came meanwhile share it, so
#: that a thousand agents are some transactions a second, and no beat waits to be noticed.
HEARTBEATS_EVERY = 0.06


@dataclass(slots=True)
class Services:
    """One center's parts, by name."""

    name: str
    settings: Settings
    store: Store
    bus: Bus
    archive: Archive
    clock: Clock
    rng: Random
    auth: Auth
    hub: Hub
    #: Words to the processes of runs.
    control: RunControl
    unsent: UnsentResults
    metrics: Metrics
    #: What /metrics shows of store and bus.
    gauges: Gauges
    #: Differences between records that were repaired here.
    repairs: Repairs
    #: Compares records that belong together.
    self_check: SelfCheck
    #: What agents encrypt their files with, and which of their runs are over.
    agent_keys: AgentKeys
    ended_runs: EndedRuns
    roster: Roster
    #: Who may take what.
    placement: PlacementAssembly
    intake: Intake
    dispatcher: Dispatcher
    leases: Leases
    ingest: Ingest
    #: How hosts are treated.
    politeness: Politeness
    #: Rings when a block may have become leasable.
    work: LongPolls
    #: Rings when a run may have ended requests to read.
    pages: Signal
    #: Rings when the dispatcher may have something to do, here or at another center.
    nudge: DispatcherTask
    #: Rings when other centers should hear that there is work.
    announce: WakeUp
    #: Set while the center lets go of its callers.
    closing: asyncio.Event
    jobs: JobAssembly
    #: Whether there is room for more.
    disk: DiskSpace
    #: Deletes what has had its time.
    retention: Retention
    #: Tells of ends of runs.
    notifier: Notifier
    #: Says what things wait for.
    why: Explainer
    #: Stored bodies that are being read; others wait.
    body_readers: asyncio.Semaphore

    async def may_work(self, agent: str) -> bool:
        """Registered, and not put aside by a person; a cordoned one, for the runs it has."""
        return await self.roster.may_work(agent) or self.placement.placer.keeps_slots(agent)

    async def lease(
        self,
        agent: str,
        want: int,
        wait: float,
        gone: Callable[[], Awaitable[bool]],
        kinds: Sequence[str] | None = None,
    ) -> list[Leased]:
        """Blocks for an agent, waiting up to `wait` seconds for the first. `kinds`: what it
        offers now; None = as it has registered.

        A caller that hung up, was switched off or is taken for dead meanwhile gets none:
        the blocks would rest in nobody's hands until their lease ran out.
        """
        deadline = self.clock.monotonic() + wait
        placer = self.placement.placer
        with self.work.place(lambda: placer.targets(agent, kinds)) as place:
            while True:
                place.look()
                if not await self.may_work(agent) or self.roster.given_up(agent):
                    return []
                if await gone() or self.disk.stops_leasing:
                    return []
                blocks = await self.leases.lease(agent, want, placer.targets(agent, kinds))
                place.looked()
                if blocks:
                    # Room in the lanes: the dispatcher may go on.
                    self.nudge.request()
                    self.metrics.leased.inc(len(blocks))
                    return blocks
                left = deadline - self.clock.monotonic()
                if left <= 0 or self.closing.is_set():
                    return []
                await place.wait(left)


def build(
    name: str,
    settings: Settings,
    store: Store,
    bus: Bus,
    archive: Archive,
    clock: Clock,
    rng: Random,
) -> Services:
    """Put a center together from its borders. Nothing is opened yet."""
    work = LongPolls(bus.lanes.targets)
    nudge, announce = DispatcherTask(clock), WakeUp(clock)

    def there_is_work() -> None:
        work.notify()
        announce.notify()

    def look_again() -> None:
        nudge.request()
        pages.notify()

    def wake_run(run: str) -> None:
        pages.notify()
        jobs.supervisor.wake(run)

    async def lanes_follow(run: Run) -> None:
        await follow_run(dispatcher, run)

    async def withdraw(numbers: list[str]) -> None:
        targets = {run_target(int(number)) for number in numbers}
        await remove_targets(bus.lanes, targets)

    metrics = Metrics()
    repairs = Repairs(metrics.count_repairs)
    politeness = Politeness(settings.sites)
    hub, pages = Hub(bus, clock, name), Signal()
    roster = Roster(settings.center, store, clock, known_kinds(), beats_every=HEARTBEATS_EVERY)
    control = RunControl(name, store, bus, hub, roster, clock, rng, wake_run, lanes_follow)
    placement = build_placement(
        settings, store, bus, hub, roster, clock, rng, there_is_work, look_again, control.moved
    )
    dispatcher = Dispatcher(
        settings.lanes,
        store,
        bus,
        clock,
        name,
        there_is_work,
        politeness,
        host=platform.node(),
        placer=placement.placer,
        repairs=repairs,
    )
    wrong_tokens = settings.center.wrong_tokens
    auth = Auth(store, clock, enabled=settings.center.auth, wrong_tokens=wrong_tokens)
    validator = Validator((*SCHEMES, *known_schemes()), rng, known_kinds())
    guard = disk_space(name, settings, store, archive, clock)
    calls = IntakeCalls(guard.check, metrics.accepted.inc, nudge.request, control.moved)
    intake = Intake(store, validator, clock, calls, placement.allocator)
    jobs = build_jobs(
        name,
        settings,
        store,
        archive,
        auth,
        validator,
        intake,
        placement,
        hub.send,
        clock,
        rng,
    )
    jobs.supervisor.obeyed = control.acknowledged
    restart_at = jobs.supervisor.restarts.get

    def disk_trouble() -> str:
        return guard.stops_leasing

    return Services(
        name=name,
        settings=settings,
        store=store,
        bus=bus,
        archive=archive,
        clock=clock,
        rng=rng,
        auth=auth,
        hub=hub,
        control=control,
        unsent=UnsentResults(store, clock),
        metrics=metrics,
        gauges=Gauges(store, bus, roster, metrics, clock),
        repairs=repairs,
        self_check=SelfCheck(
            store,
            clock,
            repairs,
            withdraw,
            archive=ArchiveCheck(name, store, archive, clock, repairs),
        ),
        agent_keys=AgentKeys(store),
        ended_runs=EndedRuns(store.runs),
        roster=roster,
        placement=placement,
        intake=intake,
        dispatcher=dispatcher,
        leases=Leases(
            settings.lanes, store, bus, clock, dispatcher, politeness, renew_every=HEARTBEATS_EVERY
        ),
        politeness=politeness,
        ingest=Ingest(settings.lanes, store, archive, clock, rng, politeness, together=True),
        work=work,
        pages=pages,
        nudge=nudge,
        announce=announce,
        disk=guard,
        retention=Retention(name, settings.keep, store, archive, clock),
        notifier=build_notifier(settings, store, clock, rng),
        closing=asyncio.Event(),
        jobs=jobs,
        why=Explainer(settings, store, bus, politeness, clock, restart_at, disk_trouble),
        body_readers=asyncio.Semaphore(BODY_READERS),
    )
