"""The dispatcher: waiting requests become blocks, blocks go into lanes. Run by centers.

Several centers can dispatch at once; the row locks of the store keep them apart, and the leader
lease on the bus only avoids duplicate work. The order is store first, lane second: a crash in
between leaves a ready block outside the lanes, and `reconcile` puts it there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from math import inf

from skep.bus.ports import Bus
from skep.errors import BusDown, SkepError, Unavailable
from skep.lanes.ageing import Ages
from skep.lanes.dispatch_log import DispatchLog
from skep.lanes.dispatch_log_rows import DispatchLogRows
from skep.lanes.dispatch_plan import Shares, blocked, plan_dispatch
from skep.lanes.lane_order import floor_lane
from skep.lanes.reconcile_lanes import LanePage, LaneReconciler, remove_runs
from skep.model.block import BlockRef
from skep.model.dispatch import DispatchReport, DispatchRow
from skep.model.hosts.politeness import Politeness
from skep.model.lane import Lane, lane_of
from skep.model.run import Run
from skep.model.states import RunState
from skep.placement.placer import Placer
from skep.runtime.clock import Clock
from skep.runtime.in_thread import in_thread
from skep.runtime.repair_counts import Repairs
from skep.settings import LaneSettings
from skep.store.ports import Store
from skep.store.ports.placement import Placing
from skep.store.ports.requests import Backlog, Packing, PackPlan

log = logging.getLogger(__name__)

#: Maximum rows of one call of wake and expire, and seconds between two calls: busy centers
#: dispatch many times a second, and due times need not be met to a tenth of a second.
SWEEP_LIMIT = 5000
SWEEP_EVERY = 0.2
#: Maximum blocks of runs at rest that one call unpacks.
UNPACK_LIMIT = 500
#: Seconds for which a leader that died blocks the others.
LEADER_SECONDS = 2.0
#: Seconds before the same run raises an alert about the same lane again, and maximum alerts of
#: one dispatch; its log has all of them.
ALERT_EVERY = 10.0
#: Seconds without movement after which a full lane raises an alert; shorter is normal.
STUCK_SECONDS = 60.0
ALERTS_AT_ONCE = 20
#: Plans of one transaction, some hundredths of a second: other writers wait for it.
PLANS_TOGETHER = 20
#: Entries of a backlog that are planned on the event loop, in some milliseconds.
PLANNED_AT_ONCE = 500
#: How repairs of the lanes are counted.
LANES = "lanes"
#: Maximum blocks listed in one log line.
NAMED = 10


def lane_limits(settings: LaneSettings) -> dict[Lane, int]:
    """Maximum requests of each lane: the setting `NAME_limit`."""
    return {lane: getattr(settings, f"{lane.label}_limit") for lane in Lane}


class Dispatcher:
    """Fills the lanes from the store. `on_work` is called when blocks became leasable."""

    def __init__(
        self,
        settings: LaneSettings,
        store: Store,
        bus: Bus,
        clock: Clock,
        center: str,
        on_work: Callable[[], None],
        politeness: Politeness,
        *,
        host: str = "",
        placer: Placer | None = None,
        repairs: Repairs | None = None,
    ) -> None:
        self._placer = placer
        self._placings: dict[str, Placing] = {}
        self._settings = settings
        self._politeness = politeness
        self._store = store
        self._bus = bus
        self._clock = clock
        self._center = center
        self._on_work = on_work
        self._limits = lane_limits(settings)
        self._log_rows = DispatchLogRows(center, host)
        self._ages = Ages(settings.age_seconds)
        #: A manual round waits for the current one.
        self._one_at_a_time = asyncio.Lock()
        self._turn = 0
        self._shares = Shares()
        self._swept_at = -inf
        #: Whether this center was the leader at the last dispatch.
        self.in_turn = True
        self._epoch = ""
        self._check = LaneReconciler(store.blocks, bus.lanes, SWEEP_LIMIT)
        self._repairs = repairs or Repairs()
        self._alerted: dict[tuple[str, Lane], float] = {}
        #: When a block last entered a lane, or when the lane was first seen full.
        self._moved_at: dict[Lane, float] = {}
        self.log = DispatchLog(store, clock, settings.log_kept)

    async def dispatch(self) -> int:
        """Run as many rounds as there is room for; returns how many requests went into lanes or
        were parked."""
        self.in_turn = await self._bus.lead("dispatch", self._center, LEADER_SECONDS)
        if not self.in_turn:
            return 0
        async with self._one_at_a_time:
            report = await self._go(None, failed_only=self._settings.failed_only)
        await self.log.write_if_due()
        # Parked requests make way for those behind them: that is progress too.
        return report.size + report.parked

    async def once(self, *, dry_run: bool = False, failed_only: bool = False) -> DispatchReport:
        """One manual round, whichever center is the leader: at most the share of each job."""
        only_failed = failed_only or self._settings.failed_only
        async with self._one_at_a_time:
            report = await self._go(1, failed_only=only_failed, dry_run=dry_run)
        if not dry_run:
            await self.log.write()
        return report

    def gave_up(self) -> None:
        """A dispatch took too long and was aborted; packed blocks are offered later."""
        reason = f"took longer than {self._settings.dispatch_seconds:g} s and was aborted"
        log.warning("dispatch %s", reason)
        now, took = self._clock.now(), self._settings.dispatch_seconds
        self.log.note([self._log_rows.failed(reason, now, took)])

    async def _go(
        self, rounds: int | None, *, failed_only: bool, dry_run: bool = False
    ) -> DispatchReport:
        begun = self._clock.monotonic()
        try:
            found = await self._plan(rounds, failed_only=failed_only, dry_run=dry_run)
            plans, rows = found
            if dry_run:
                rows = [*rows, *self._log_rows.planned(plans, self._clock.now())]
                packing = Packing([])
            else:
                packing, failed = await self._pack(plans)
                took = self._clock.monotonic() - begun
                rows += failed
                rows += self._log_rows.packed(packing.blocks, plans, self._clock.now(), took)
                self.log.note(rows, self._log_rows.numbers)
        except Unavailable as error:
            took = self._clock.monotonic() - begun
            self.log.note([self._log_rows.failed(error.detail, self._clock.now(), took)])
            raise
        took = self._clock.monotonic() - begun
        return self._log_rows.report(rows, took, packing.parked, dry_run=dry_run)

    async def _plan(
        self, rounds: int | None, *, failed_only: bool, dry_run: bool
    ) -> tuple[list[PackPlan], list[DispatchRow]]:
        """What to take from which run, and rows about runs that get nothing."""
        now = self._clock.now()
        if not dry_run:
            await self._sweep(now, at_once=rounds is not None)
        backlog = await self._store.requests.backlog(failed_only=failed_only)
        backlog = await self._placeable(backlog)
        if not backlog:
            return [], []
        self._log_rows.learn(backlog)
        room = await self._room()
        self._turn += 1
        if len(backlog) <= PLANNED_AT_ONCE:
            plans, waiting = self._planned(backlog, room, rounds)
        else:  # takes a second with many runs, in which the center must answer calls
            plans, waiting = await in_thread(lambda: self._planned(backlog, room, rounds))
        self._notice_movement(waiting, plans, now)
        filled = {lane: self._limits[lane] - room[lane] for lane in Lane}
        if waiting and not dry_run:
            await self._complain(waiting, filled, now)
        rows = self._log_rows.blocked(waiting, self._limits, now)
        return plans, rows

    def _planned(
        self, backlog: list[Backlog], room: Mapping[Lane, int], rounds: int | None
    ) -> tuple[list[PackPlan], list[tuple[str, Lane]]]:
        """Decide what to take; one call at a time, on any thread."""
        plans = plan_dispatch(
            backlog,
            room,
            self._settings.dispatch_limit,
            self._turn,
            rounds=rounds,
            first=floor_lane(self._turn, self._settings.floor_every),
            begun=self._shares if rounds is None else None,
        )
        return plans, blocked(backlog, room, plans)

    async def _pack(self, plans: Sequence[PackPlan]) -> tuple[Packing, list[DispatchRow]]:
        """Pack and offer; some plans in each transaction, so that no writer waits for all."""
        blocks: list[BlockRef] = []
        failed: list[DispatchRow] = []
        parked = 0
        for start in range(0, len(plans), PLANS_TOGETHER):
            some, wrong = await self._pack_some(plans[start : start + PLANS_TOGETHER])
            await self.offer(some.blocks)
            blocks += some.blocks
            parked += some.parked
            failed += wrong
        return Packing(blocks, parked), failed

    async def _pack_some(self, plans: Sequence[PackPlan]) -> tuple[Packing, list[DispatchRow]]:
        """In one transaction; if one of the plans fails, each in its own."""
        now = self._clock.now()
        try:
            return await self._packed(plans, now), []
        except Unavailable:
            raise
        except Exception as error:  # noqa: BLE001 - reported below, with its run
            log.warning("dispatching %d plans one by one: %s", len(plans), error)
            return await self._one_by_one(plans, now)

    async def _one_by_one(
        self, plans: Sequence[PackPlan], now: float
    ) -> tuple[Packing, list[DispatchRow]]:
        blocks: list[BlockRef] = []
        parked, failed = 0, []
        for plan in plans:
            try:
                one = await self._packed([plan], now)
            except Unavailable:
                raise
            except Exception as error:
                reason = error.detail if isinstance(error, SkepError) else f"error: {error}"
                log.warning("cannot dispatch run %s: %s", plan.run, reason, exc_info=True)
                failed.append(self._log_rows.failed(reason, now, 0.0, plan))
                continue
            blocks += one.blocks
            parked += one.parked
        return Packing(blocks, parked), failed

    async def _packed(self, plans: Sequence[PackPlan], now: float) -> Packing:
        return await self._store.requests.pack(plans, now, self._politeness, self._placings)

    async def _placeable(self, backlog: list[Backlog]) -> list[Backlog]:
        """Without runs whose agents are not available: their blocks would only fill the lanes."""
        if self._placer is None or not backlog:
            return backlog
        found = await self._placer.look(list(dict.fromkeys(entry.run for entry in backlog)))
        self._placings = {run: placing for run, placing in found.items() if placing is not None}
        nobody = found.keys() - self._placings.keys()
        return [entry for entry in backlog if entry.run not in nobody]

    async def offer(self, refs: Sequence[BlockRef]) -> None:
        """Put blocks into lanes. One that does not fit stays ready in the store."""
        if not refs:
            return
        refused = await self._bus.lanes.push(refs)
        self._check.left_out(ref.id for ref in refused)
        self._on_work()
        # A run may have ended, or an agent may have leased a block, between the store's answer
        # and the push: blocks that are no longer claimable leave the lanes again.
        with suppress(Unavailable):  # `reconcile` compares all of them
            await self.drop_ended([ref.id for ref in refs])

    async def drop_ended(self, block_ids: Collection[int]) -> None:
        """Remove those of these blocks that cannot be leased from the lanes."""
        await self._bus.lanes.remove(sorted(await self._check.not_claimable(block_ids)))

    async def withdraw(self, run: str) -> None:
        """Remove a run that is no longer running from the lanes."""
        await remove_runs(self._bus.lanes, [run])

    def left_out(self, block_ids: Collection[int]) -> None:
        """These were popped and not leased; `reconcile` puts them back."""
        self._check.left_out(block_ids)

    async def reconcile(self, *, at_once: bool = False) -> int:
        """Compare lanes and store, and repair the lanes; returns how many blocks went in.

        A block that is missing once may be on its way to an agent. When the bus has lost its
        data, or a run continues (`at_once`: its blocks left the lanes while it was paused),
        missing blocks are certain, and all are put in at once.
        """
        epoch = await self._bus.epoch()
        forgot = at_once or epoch != self._epoch
        self._epoch = epoch
        await self._store.hosts.unpack(self._clock.now(), UNPACK_LIMIT)
        if not at_once:
            removed = await self._check.remove_surplus()
            what = f"removed ended blocks {_named(removed)} from lanes"
            self._repairs.repaired(LANES, len(removed), what)
        page = await self._check.next_page(at_once=forgot)
        await self.offer(page.due)
        what = f"put ready blocks {_named(sorted(page.unexplained))} into lanes"
        self._repairs.repaired(LANES, len(page.unexplained), what)
        self._repairs.seen(LANES, len(self._check.surplus))
        await self._promote(page)
        return len(page.due)

    async def _promote(self, page: LanePage) -> None:
        """Blocks that waited at the tail for too long move to the head, the oldest first."""
        moment = self._clock.monotonic()
        old = self._ages.too_old(page.present, moment, page.after, page.until)
        if not old:
            return
        await self._bus.lanes.remove([ref.id for ref in old])
        await self.offer(list(reversed(old)))

    async def _sweep(self, now: float, *, at_once: bool) -> None:
        await self._store.hosts.wake(now, self._politeness, SWEEP_LIMIT)
        moment = self._clock.monotonic()
        if at_once or moment - self._swept_at >= SWEEP_EVERY:
            woken = await self._store.requests.wake(now, SWEEP_LIMIT)
            expired = await self._store.requests.expire(now, SWEEP_LIMIT)
            if max(woken, expired) < SWEEP_LIMIT:  # else there are more
                self._swept_at = moment

    async def _room(self) -> dict[Lane, int]:
        sizes = await self._bus.lanes.sizes()
        return {lane: limit - sizes.get(lane, 0) for lane, limit in self._limits.items()}

    def _notice_movement(
        self, waiting: Sequence[tuple[str, Lane]], plans: Sequence[PackPlan], now: float
    ) -> None:
        full = {lane for _, lane in waiting}
        moved = {lane_of(plan.priority) for plan in plans}
        kept = {lane: at for lane, at in self._moved_at.items() if lane in full - moved}
        self._moved_at = {**dict.fromkeys(full, now), **kept}

    async def _complain(
        self, waiting: Sequence[tuple[str, Lane]], filled: dict[Lane, int], now: float
    ) -> None:
        recent = {key: at for key, at in self._alerted.items() if now - at < ALERT_EVERY}
        stuck = {lane for lane, at in self._moved_at.items() if now - at >= STUCK_SECONDS}
        due = [pair for pair in waiting if pair[1] in stuck and pair not in recent]
        due = due[:ALERTS_AT_ONCE]
        self._alerted = recent | dict.fromkeys(due, now)
        for run, lane in due:
            state = f"{filled[lane]}/{self._limits[lane]}"
            since = f"nothing went in for {now - self._moved_at[lane]:.0f} s"
            detail = f"lane {lane.label} full {state}, {since}; its requests wait"
            await self._store.alerts.raise_("lane_full", run, detail, now)


async def dispatch_in_time(dispatcher: Dispatcher, seconds: float) -> int:
    """`dispatch`, aborted after these seconds: then nothing was done, or `reconcile` puts the
    packed blocks into the lanes."""
    try:
        async with asyncio.timeout(seconds):
            return await dispatcher.dispatch()
    except TimeoutError:
        dispatcher.gave_up()
        return 0


async def try_offer(dispatcher: Dispatcher, refs: Sequence[BlockRef]) -> None:
    """Offer returned blocks; without a bus they wait in the store for `reconcile`."""
    try:
        await dispatcher.offer(refs)
    except BusDown:
        return


def _named(block_ids: Sequence[int]) -> str:
    shown = ", ".join(str(block) for block in block_ids[:NAMED])
    more = len(block_ids) - NAMED
    return f"{shown} and {more} more" if more > 0 else shown


async def follow_run(dispatcher: Dispatcher, run: Run) -> None:
    """Update the lanes after a run has changed its state: without a bus, or without the store, the
    periodic comparison does it a little later."""
    with suppress(Unavailable):
        if run.state is RunState.RUNNING:
            await dispatcher.reconcile(at_once=True)
        else:
            await dispatcher.withdraw(run.id)


async def try_reconcile(dispatcher: Dispatcher) -> None:
    """Put blocks back that left the lanes; without a bus it happens a little later."""
    try:
        await dispatcher.reconcile(at_once=True)
    except BusDown:
        return
