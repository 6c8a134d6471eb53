"""Agents that a test controls and that stay alive: they register, send heartbeats, lease, report.

For tests of placement, with a real center over real HTTP. They download nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from skep.model.block import BlockReport, Leased
from skep.model.fleet.agent import Registration, Vitals
from skep.model.request import Outcome
from skep.testing.grounds.centers import HandAgent, RunningCenter, works_of
from skep.wire.messages import Heartbeat, LeaseAsk, LeaseReply, Register

SITE = "http://127.0.0.1"
#: Agents are dead after three seconds; no call waits for missing agents.
PLACING: Mapping[str, float] = {
    "center_alive_after": 3.0,
    "center_sweep_every": 0.1,
    "center_allocate_wait": 0.0,
}


class ManualAgent:
    """An agent that sends heartbeats until `die`, like a real one."""

    def __init__(self, center: RunningCenter, name: str, **about: Any) -> None:
        self.hand: HandAgent = center.hand_agent(name)
        self.about = Registration(name, name, **about)
        self.vitals = Vitals(free_memory=2**30)
        self._beats: asyncio.Task[None] | None = None

    async def start(self) -> ManualAgent:
        assert (await self.hand.call("register", Register(self.about))).status == 200
        await self._heartbeat()
        self._beats = asyncio.create_task(self._go_on())
        return self

    async def _heartbeat(self) -> None:
        holding = [block.held for block in self.hand.held.values()]
        await self.hand.call("heartbeat", Heartbeat(self.hand.id, self.vitals, holding))

    async def _go_on(self) -> None:
        while True:
            await asyncio.sleep(0.2)
            await self._heartbeat()

    async def die(self) -> None:
        if self._beats is not None:
            self._beats.cancel()
            await asyncio.gather(self._beats, return_exceptions=True)
            self._beats = None

    async def lease(self, want: int = 20, wait: float = 0.0) -> list[Leased]:
        ask = LeaseAsk(self.hand.id, want, wait, self.about.kinds)
        blocks = (await self.hand.call("lease", ask)).read(LeaseReply).blocks
        self.hand.held.update({block.id: block for block in blocks})
        return blocks

    async def uris(self, blocks: Sequence[Leased]) -> list[str]:
        return [work.uri for block in blocks for work in works_of(block)]

    async def finish(self, block: Leased) -> list[int]:
        """Report everything in it as done; returns the ids of its requests."""
        ids = [work.id for work in works_of(block)]
        outcomes = [Outcome(number, status=200) for number in ids]
        self.hand.held.pop(block.id, None)
        verdicts = await self.hand.report(BlockReport(block.id, block.token, outcomes))
        assert verdicts == ["stored"]
        return ids


@asynccontextmanager
async def joining(center: RunningCenter) -> AsyncIterator[Callable[..., Awaitable[ManualAgent]]]:
    """Lets agents join by name; all of them leave at the end."""
    hands: list[ManualAgent] = []

    async def join(name: str, **about: Any) -> ManualAgent:
        hand = await ManualAgent(center, name, **about).start()
        hands.append(hand)
        return hand

    try:
        yield join
    finally:
        for hand in hands:
            await hand.die()


async def fill(center: RunningCenter, run: str, count: int = 20) -> None:
    """Add requests to a run and dispatch them into the lanes."""
    await center.put(run, [f"{SITE}/{run}/{n}" for n in range(count)])
    await center.dispatched()


async def open_run(center: RunningCenter, run: str, placement: Any, **settings: Any) -> Any:
    """The answer of the center, also an error."""
    body = {"settings": {"placement": placement, "block_size": 5, **settings}}
    return await center.admin.put(f"/api/v1/runs/{run}", body)


async def agents_of(center: RunningCenter, run: str) -> list[str]:
    """The allocated agents."""
    allocation = await center.services.store.allocations.get(run)
    return allocation.agents if allocation else []
