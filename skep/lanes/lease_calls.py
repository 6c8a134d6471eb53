"""Answers agents that ask for blocks, and lets them wait for the first one. Centers only.

An agent gets blocks only while it may work and still listens: the blocks of a caller that hung
up, was switched off or is taken for dead would be held by no agent until their lease ran out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from skep.fleet.roster import Roster
from skep.lanes.leases import Leases
from skep.lanes.long_poll import LongPolls
from skep.model.block import Leased
from skep.placement.placer import Placer
from skep.runtime.clock import Clock


@dataclass(frozen=True, slots=True)
class LeaseCalls:
    """Of all agents at one center."""

    leases: Leases
    polls: LongPolls
    placer: Placer
    roster: Roster
    clock: Clock
    #: Set while the center stops: callers get their answer at once.
    closing: asyncio.Event
    #: Why nothing is leased at the moment; "" = leasing continues.
    stops_leasing: Callable[[], str]
    #: Told how many blocks were leased.
    on_leased: Callable[[int], None]

    async def may_work(self, agent: str) -> bool:
        """Registered, and not disabled by a person; a cordoned one, for the runs it has."""
        return await self.roster.may_work(agent) or self.placer.keeps_slots(agent)

    async def lease(
        self,
        agent: str,
        want: int,
        wait: float,
        gone: Callable[[], Awaitable[bool]],
        kinds: Sequence[str] | None = None,
    ) -> list[Leased]:
        """Blocks for an agent, waiting up to `wait` seconds for the first; none when it must not
        work, or `gone` says that its call has ended. `kinds`: the downloader kinds that it offers
        now; None = as it has registered."""
        deadline = self.clock.monotonic() + wait
        with self.polls.place(lambda: self.placer.targets(agent, kinds)) as place:
            while True:
                place.look()
                if await self._gets_nothing(agent) or await gone() or self.stops_leasing():
                    return []
                blocks = await self.leases.lease(agent, want, self.placer.targets(agent, kinds))
                place.looked()
                if blocks:
                    self.on_leased(len(blocks))
                    return blocks
                left = deadline - self.clock.monotonic()
                if left <= 0 or self.closing.is_set():
                    return []
                await place.wait(left)

    async def _gets_nothing(self, agent: str) -> bool:
        return not await self.may_work(agent) or self.roster.given_up(agent)
