"""Everything that an endpoint may use, built once per center. Assembly only."""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from random import Random

from skep.archive.ports import Archive
from skep.bus.ports import Bus
from skep.center.agent_keys import AgentKeys
from skep.center.archive_check import ArchiveCheck
from skep.center.auth import Auth
from skep.center.control import Control
from skep.center.disk import DiskGuard, disk_guard
from skep.center.ended_runs import EndedRuns
from skep.center.errand import Errand
from skep.center.gauges import Gauges
from skep.center.job_rooms import JobRooms, build_jobs
from skep.center.live import Hub
from skep.center.metrics import Metrics
from skep.center.placement_rooms import PlacementRooms, build_placement
from skep.center.selfcheck import SelfCheck
from skep.center.telling import build_notifier
from skep.center.unsent_results import UnsentResults
from skep.center.waiting import WaitingRoom
from skep.downloaders.schemes import known_kinds, known_schemes
from skep.jobs.intake import Intake
from skep.jobs.notices import Notifier
from skep.jobs.retention import Retention
from skep.jobs.validate import Validator
from skep.lanes.dispatch import Dispatcher, follow_run
from skep.lanes.ingest import Ingest
from skep.lanes.lane_check import remove_targets
from skep.lanes.leases import Leases
from skep.lanes.why.desk import WhyDesk
from skep.model.block import Leased
from skep.model.manners import Manners
from skep.model.placement import run_target
from skep.model.run import Run
from skep.placement.roster import Roster
from skep.runtime.bell import Bell, Nudge
from skep.runtime.clock import Clock
from skep.runtime.repairs import Repairs
from skep.settings import Settings
from skep.store.ports import Store

#: Schemes that the agents of this version can download.
SCHEMES = ("http", "https")
#: Stored bodies that are read at the same time.
BODY_READERS = 8
#: Seconds from one writing of heartbeats to the next: all that came meanwhile share it, so
#: that a thousand agents are some transactions a second, and no beat waits to be noticed.
BEATS_EVERY = 0.06


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
    control: Control
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
    placement: PlacementRooms
    intake: Intake
    dispatcher: Dispatcher
    leases: Leases
    ingest: Ingest
    #: How hosts are treated.
    manners: Manners
    #: Rings when a block may have become leasable.
    work: WaitingRoom
    #: Rings when a run may have ended requests to read.
    pages: Bell
    #: Rings when the dispatcher may have something to do, here or at another center.
    nudge: Errand
    #: Rings when other centers should hear that there is work.
    announce: Nudge
    #: Set while the center lets go of its callers.
    closing: asyncio.Event
    jobs: JobRooms
    #: Whether there is room for more.
    disk: DiskGuard
    #: Deletes what has had its time.
    retention: Retention
    #: Tells of ends of runs.
    notifier: Notifier
    #: Says what things wait for.
    why: WhyDesk
    #: Stored bodies that are being read; others wait.
    body_readers: asyncio.Semaphore

    async def may_work(self, agent: str) -> bool:
        """Registered, and not put aside by a person; a cordoned one, for the runs it has."""
        return await self.roster.may_work(agent) or self.placement.placer.keeps_seats(agent)

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
                    self.nudge.ring()
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
    work = WaitingRoom(bus.lanes.targets)
    nudge, announce = Errand(clock), Nudge(clock)

    def there_is_work() -> None:
        work.ring()
        announce.ring()

    def look_again() -> None:
        nudge.ring()
        pages.ring()

    def wake_run(run: str) -> None:
        pages.ring()
        jobs.keeper.poke(run)

    async def lanes_follow(run: Run) -> None:
        await follow_run(dispatcher, run)

    async def withdraw(numbers: list[str]) -> None:
        targets = {run_target(int(number)) for number in numbers}
        await remove_targets(bus.lanes, targets)

    metrics = Metrics()
    repairs = Repairs(metrics.count_repairs)
    manners = Manners(settings.sites)
    hub, pages = Hub(bus, clock, name), Bell()
    roster = Roster(settings.center, store, clock, known_kinds(), beats_every=BEATS_EVERY)
    control = Control(name, store, bus, hub, roster, clock, rng, wake_run, lanes_follow)
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
        manners,
        host=platform.node(),
        placer=placement.placer,
        repairs=repairs,
    )
    wrong_tokens = settings.center.wrong_tokens
    auth = Auth(store, clock, enabled=settings.center.auth, wrong_tokens=wrong_tokens)
    validator = Validator((*SCHEMES, *known_schemes()), rng, known_kinds())
    guard = disk_guard(name, settings, store, archive, clock)
    intake = Intake(
        store, validator, clock, nudge.ring, guard.check, placement.allocator, control.moved
    )
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
    jobs.keeper.obeyed = control.obeyed
    restart_at = jobs.keeper.restarts.get

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
            settings.lanes, store, bus, clock, dispatcher, manners, renew_every=BEATS_EVERY
        ),
        manners=manners,
        ingest=Ingest(settings.lanes, store, archive, clock, rng, manners, together=True),
        work=work,
        pages=pages,
        nudge=nudge,
        announce=announce,
        disk=guard,
        retention=Retention(name, settings.keep, store, archive, clock),
        notifier=build_notifier(settings, store, clock, rng),
        closing=asyncio.Event(),
        jobs=jobs,
        why=WhyDesk(settings, store, bus, manners, clock, restart_at, disk_trouble),
        body_readers=asyncio.Semaphore(BODY_READERS),
    )
