"""The dispatcher: waiting requests become blocks, blocks go into lanes. Run by centers.

Several centers may dispatch at once; the store's row locks keep them apart, and the turn
on the bus only spares them useless work. The order is store first, lane second: a crash
in between leaves a ready block outside the lanes, and `reconcile` puts it there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from skep.bus.ports import Bus
from skep.errors import BusDown
from skep.lanes.plan import blocked, plan_dispatch
from skep.model.block import BlockRef
from skep.model.lane import Lane
from skep.model.manners import Manners
from skep.runtime.clock import Clock
from skep.settings import LaneSettings
from skep.store.facts import Backlog
from skep.store.ports import Store

#: Rows that one call of wake and expire looks at.
SWEEP_LIMIT = 5000
#: Blocks of resting runs that one call takes apart.
UNPACK_LIMIT = 500
#: A center that died in its turn holds the others up for so long.
TURN_SECONDS = 2.0
#: Seconds before the same run may complain about the same lane again.
ALERT_EVERY = 10.0


def lane_limits(settings: LaneSettings) -> dict[Lane, int]:
    """The bounds of the lanes, in requests."""
    return {
        Lane.SUPER: settings.super_limit,
        Lane.HIGH: settings.high_limit,
        Lane.MID: settings.mid_limit,
        Lane.LOW: settings.low_limit,
    }


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
        manners: Manners,
    ) -> None:
        self._settings = settings
        self._manners = manners
        self._store = store
        self._bus = bus
        self._clock = clock
        self._center = center
        self._on_work = on_work
        self._limits = lane_limits(settings)
        self._turn = 0
        self._epoch = ""
        self._missing: set[int] = set()
        self._alerted: dict[tuple[str, Lane], float] = {}

    async def dispatch(self) -> int:
        """One round; returns how many requests went into lanes or were parked."""
        if not await self._bus.turn("dispatch", self._center, TURN_SECONDS):
            return 0
        now = self._clock.now()
        await self._sweep(now)
        backlog = await self._store.requests.backlog()
        if not backlog:
            return 0
        room = await self._room()
        await self._complain(backlog, room, now)
        self._turn += 1
        plans = plan_dispatch(backlog, room, self._settings.dispatch_limit, self._turn)
        if not plans:
            return 0
        packing = await self._store.requests.pack(plans, now, self._manners)
        await self.offer(packing.blocks)
        # What was parked made way for what stood behind it: that is progress too.
        return sum(ref.size for ref in packing.blocks) + packing.parked

    async def offer(self, refs: Sequence[BlockRef]) -> None:
        """Put blocks into lanes. One that does not fit stays ready in the store."""
        if not refs:
            return
        await self._bus.lanes.push(refs)
        self._on_work()

    async def reconcile(self, *, at_once: bool = False) -> int:
        """Put ready blocks into the lanes that should be there; returns how many.

        A block that is missing once may just be on its way to an agent. When the bus has
        lost its memory, or a run goes on (`at_once`: its blocks left the lanes while it
        was paused), there is no doubt, and everything goes in at once.
        """
        epoch = await self._bus.epoch()
        forgot = at_once or epoch != self._epoch
        self._epoch = epoch
        await self._store.sites.unpack(self._clock.now(), UNPACK_LIMIT)
        ready = await self._store.blocks.claimable(SWEEP_LIMIT)
        there = await self._bus.lanes.ids()
        missing = {ref.id for ref in ready} - there
        due = missing if forgot else missing & self._missing
        self._missing = missing - due
        refs = [ref for ref in ready if ref.id in due]
        await self.offer(refs)
        return len(refs)

    async def _sweep(self, now: float) -> None:
        await self._store.requests.wake(now, SWEEP_LIMIT)
        await self._store.sites.wake(now, self._manners, SWEEP_LIMIT)
        await self._store.requests.expire(now, SWEEP_LIMIT)

    async def _room(self) -> dict[Lane, int]:
        sizes = await self._bus.lanes.sizes()
        return {lane: limit - sizes.get(lane, 0) for lane, limit in self._limits.items()}

    async def _complain(self, backlog: list[Backlog], room: dict[Lane, int], now: float) -> None:
        for run, lane in blocked(backlog, room):
            if now - self._alerted.get((run, lane), -ALERT_EVERY) < ALERT_EVERY:
                continue
            self._alerted[run, lane] = now
            limit = self._limits[lane]
            detail = f"lane {lane.label} full {limit - room[lane]}/{limit}; its requests wait"
            await self._store.alerts.raise_("lane_full", run, detail, now)


async def try_offer(dispatcher: Dispatcher, refs: Sequence[BlockRef]) -> None:
    """Offer blocks that came back; without a bus they wait in the store for `reconcile`."""
    try:
        await dispatcher.offer(refs)
    except BusDown:
        return


async def try_reconcile(dispatcher: Dispatcher) -> None:
    """Bring back at once what left the lanes; without a bus it happens a little later."""
    try:
        await dispatcher.reconcile(at_once=True)
    except BusDown:
        return
