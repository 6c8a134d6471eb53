"""Leases blocks to agents and takes them back. Run by centers only.

The lanes give the order of attempts, the store decides. Whatever happens to an agent or to this
center, a block ends in exactly one way: reported under its newest token.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from skep.bus.ports import Bus
from skep.lanes.dispatch import Dispatcher, try_offer
from skep.lanes.lane_order import STRICT, floor_lane
from skep.model.block import BlockRef, Held, Leased
from skep.model.hosts.host import NO_ROBOTS, Pace
from skep.model.hosts.politeness import Politeness
from skep.model.run import RunSettings
from skep.runtime.batcher import Batcher
from skep.runtime.clock import Clock
from skep.settings import LaneSettings
from skep.store.ports import Store
from skep.store.ports.blocks import Freed
from skep.store.ports.hosts import HeldHost

#: Maximum blocks that one transaction takes back.
REAP_LIMIT = 200


class Leases:
    """Leases, renews and takes back blocks."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        settings: LaneSettings,
        store: Store,
        bus: Bus,
        clock: Clock,
        politeness: Politeness,
        *,
        renew_every: float | None = None,
    ) -> None:
        """`renew_every`: renewals are written together, at most once in this many seconds; None =
        each separately."""
        self._settings = settings
        self._politeness = politeness
        self._store = store
        self._bus = bus
        self._clock = clock
        self._dispatcher = dispatcher
        self._tick = 0
        self._renewals: Batcher[tuple[str, Sequence[Held]], list[int]] | None = None
        if renew_every is not None:
            self._renewals = Batcher(self._renew, renew_every)

    async def lease(
        self, agent: str, want: int, targets: Sequence[str] | None = None
    ) -> list[Leased]:
        """Up to `want` blocks for these targets (None: for any agent, and for this one), best lane
        first; returns nothing when there are none."""
        while refs := await self._pop(("", agent) if targets is None else targets, want):
            now = self._clock.now()
            until = now + self._settings.lease_seconds
            # Popped and not leased (a crash here, a paused run): ready in the store, and
            # `reconcile` puts it back into its lane.
            ids = [ref.id for ref in refs]
            self._dispatcher.left_out(ids)
            blocks = await self._store.blocks.lease(ids, agent, now, until, self._politeness)
            if blocks:
                return blocks
            # All of them expired or were taken: there may be more blocks.
        return []

    async def _pop(self, targets: Sequence[str], want: int) -> list[BlockRef]:
        self._tick += 1
        first = floor_lane(self._tick, self._settings.floor_every)
        # A whole lease, not one block of it: a lane of small blocks would get too little.
        refs = await self._bus.lanes.pop((first,), targets, want) if first is not None else []
        if len(refs) < want:
            refs += await self._bus.lanes.pop(STRICT, targets, want - len(refs))
        return refs

    async def paces(self, blocks: Sequence[Leased], runs: Mapping[str, RunSettings]) -> list[Pace]:
        """The limits of the hosts in these blocks; hosts without limits are absent."""
        now = self._clock.now()
        by_id = {block.id: block for block in blocks}
        found = await self._store.hosts.held(list(by_id))
        paces = (self._pace(item, by_id[item.block], runs, now) for item in found)
        return [pace for pace in paces if pace is not None]

    def _pace(
        self, item: HeldHost, block: Leased, runs: Mapping[str, RunSettings], now: float
    ) -> Pace | None:
        if block.run not in runs:
            return None
        pace = self._politeness.pace(item.site, runs[block.run], now)
        if pace is not None and block.token > 1:
            # The time of the previous holder's last request is not known.
            pace = msgspec.structs.replace(pace, wait=max(pace.wait, pace.spacing))
        if pace is not None and item.failure and (pace.robots or not _for_robots(item)):
            pace = msgspec.structs.replace(pace, failure=item.failure, detail=item.detail)
        return pace

    async def renew(self, agent: str, held: Sequence[Held]) -> list[int]:
        """Renew leases; returns the blocks that the agent must drop."""
        if not held:
            return []
        if self._renewals is not None:
            return await self._renewals.ask(agent, (agent, held))
        [lost] = await self._renew([(agent, held)])
        return lost

    async def _renew(self, asks: list[tuple[str, Sequence[Held]]]) -> list[list[int]]:
        until = self._clock.now() + self._settings.lease_seconds
        return await self._store.blocks.renew_many(asks, until)

    async def give_back(self, agent: str, held: Sequence[Held], reason: str) -> int:
        refs = await self._store.blocks.give_back(held, agent, self._clock.now(), reason)
        await try_offer(self._dispatcher, refs)
        return len(refs)

    async def abandon(self, agent: str, holding: Sequence[Held]) -> list[Freed]:
        """An agent registered with these blocks; all its other blocks are free again."""
        now = self._clock.now()
        limit = self._settings.lease_limit
        freed = await self._store.blocks.abandon(agent, holding, now, limit)
        await try_offer(self._dispatcher, [item.ref for item in freed if item.ref is not None])
        return freed

    async def reap(self, dead_agents: Sequence[str]) -> list[Freed]:
        """Take back blocks with an expired lease or a dead agent."""
        now = self._clock.now()
        limit = self._settings.lease_limit
        freed = await self._store.blocks.reap(now, dead_agents, limit, REAP_LIMIT)
        await try_offer(self._dispatcher, [item.ref for item in freed if item.ref is not None])
        return freed


def _for_robots(item: HeldHost) -> bool:
    """Attempts to fetch robots.txt do not matter to a run that no longer checks it."""
    return item.detail.startswith(NO_ROBOTS)
