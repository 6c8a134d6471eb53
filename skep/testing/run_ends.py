"""The pair matrix of ends of runs: placement x end x where the blocks are, on one center.

For tests. Each combination opens a run, brings its blocks to their place, ends it, looks that
nothing is left of it, and lets another run through. Combinations share a center.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from skep.agent.workspace import Workspace
from skep.model.block import BlockReport, Leased
from skep.model.request import Outcome
from skep.model.states import RunState
from skep.testing.centers import RunningCenter, works_of
from skep.testing.hands import PLACING, SITE, Hand, until
from skep.wire.messages import Heartbeat, HeartbeatReply

PLACEMENTS: Mapping[str, dict[str, Any]] = {
    "any": {},
    "group": {"strategy": "any", "group": "default"},
    "fixed": {"strategy": "fixed", "n": 1},
    "chained": {"strategy": "chained", "n": 1},
    "hashed": {"strategy": "hashed"},
}
ENDS = ("finish", "cancel", "page limit", "failure", "pause")
PLACES = ("waiting", "lanes", "leased", "delayed")
BUSES = ("memory", "redis")
#: A lane holds the blocks of one run. Looks are a second apart: on a busy machine a call to
#: Redis may be under way for longer than two looks that are closer.
SETTINGS: Mapping[str, Any] = {
    **PLACING,
    "lanes_reconcile_every": 1.0,
    "lanes_low_limit": 20,
    "lanes_retry_first": 0.1,
    "center_self_check_every": 1.0,
}
REQUESTS, BLOCK = 20, 5


class Ground:
    """A center, an agent by hand with real files, and the runs of the combinations."""

    def __init__(self, center: RunningCenter, workspace: Workspace) -> None:
        self.center = center
        self.workspace = workspace
        self.hand = Hand(center, "a")
        self._count = 0

    async def open(self) -> None:
        self.workspace.open()
        await self.hand.start()

    async def close(self) -> None:
        await self.hand.die()

    async def combination(self, placement: str, end: str, place: str) -> None:
        """Raises AssertionError when anything of the run is left."""
        self._count += 1
        run = f"{placement}-{end}-{place}-{self._count}".replace(" ", "-")
        await self._open_run(run, PLACEMENTS[placement])
        await self._bring(run, place)
        if end == "pause":
            await self._pause_and_go_on(run)
        await self._end(run, "finish" if end == "pause" else end)
        if end == "pause":
            done = await self.center.ledger(run)
            assert done.done == done.accepted == REQUESTS, done.line()
        await self._nothing_left(run)
        await self._another_run_gets_through(f"{run}-next")

    # -- to the place

    async def _open_run(self, run: str, placement: dict[str, Any], **more: Any) -> None:
        settings = {"placement": placement, "block_size": BLOCK, "retries": 3, **more}
        answer = await self.center.admin.put(f"/api/v1/runs/{run}", {"settings": settings})
        assert answer.status == 200, answer.content

    async def _bring(self, run: str, place: str) -> None:
        if place == "waiting":
            # A full lane keeps them waiting.
            await self._open_run(f"{run}-full", {})
            await self._put(f"{run}-full", REQUESTS)
            await self._until_lanes(REQUESTS)
        await self._put(run, REQUESTS)
        if place == "waiting":
            return
        await self._until_lanes(REQUESTS)
        if place == "lanes":
            return
        blocks = await self._lease(run)
        if place == "delayed":
            for block in blocks:
                await self._fail(block)

    async def _put(self, run: str, count: int) -> None:
        await self.center.put(run, [f"{SITE}/{run}/{n}" for n in range(count)])

    async def _until_lanes(self, count: int) -> None:
        lanes = self.center.services.bus.lanes

        async def full() -> bool:
            return sum((await lanes.sizes()).values()) >= count

        await until(full)

    async def _lease(self, run: str) -> list[Leased]:
        found: list[Leased] = []
        async with asyncio.timeout(15):
            while sum(block.size for block in found) < REQUESTS:
                found += await self.hand.lease(wait=1.0)
        settings = await self.center.services.store.runs.settings_of([run])
        self.workspace.allocate(run, settings[run])
        return found

    async def _fail(self, block: Leased) -> None:
        outcomes = [Outcome(work.id, "network", 0) for work in works_of(block)]
        self.hand.hand.held.pop(block.id, None)
        await self.hand.hand.report(BlockReport(block.id, block.token, outcomes))

    # -- the end

    async def _pause_and_go_on(self, run: str) -> None:
        """A paused run leaves the lanes; continued, all of its work comes back and is done."""
        await self.center.services.intake.move(run, RunState.PAUSED)
        await self._give_back(run)
        ids = {ref.id for ref in await self._entries(run)}
        assert not ids, f"a paused run is in lanes: {ids}"
        await self.center.services.intake.move(run, RunState.RUNNING)
        async with asyncio.timeout(30):
            while (await self.center.ledger(run)).done < REQUESTS:
                for block in await self.hand.lease(wait=0.5):
                    await self.hand.finish(block)

    async def _end(self, run: str, end: str) -> None:
        services = self.center.services
        if end in {"finish", "cancel"}:
            assert (await self.center.admin.post(f"/api/v1/runs/{run}/{end}")).status == 200
        elif end == "page limit":
            # As a driver that has its pages: the run ends and its open requests are cancelled.
            driver = await services.store.turns.take_over(run)
            body = {"driver": driver, "state": "finished", "reason": "page_limit"}
            answer = await self.center.admin.post(f"/requestqueue/{run}/end", body)
            assert answer.status == 200, answer.content
        else:
            await services.intake.move(run, RunState.FAILED, "a test")
        await self._give_back(run)

    async def _give_back(self, run: str) -> None:
        """What the agent has in its hands, as one does that hears of the end or the pause."""
        for block in [one for one in self.hand.hand.held.values() if one.run == run]:
            self.hand.hand.held.pop(block.id)
            await self.hand.hand.give_back(block)

    # -- afterwards

    async def _entries(self, run: str) -> Sequence[Any]:
        refs, cursor = await self.center.services.bus.lanes.scan("", 1000)
        assert not cursor
        return [ref for ref in refs if ref.run == run]

    async def _nothing_left(self, run: str) -> None:
        services = self.center.services

        async def whole() -> bool:
            self._forget((await self._beat()).released)
            ready = {ref.id for ref in await services.store.blocks.claimable(1000)}
            return (
                await services.bus.lanes.ids() == ready
                and not await self._entries(run)
                and all(one.run != run for one in await services.store.allocations.open())
                and not self.workspace.remembers(run)
            )

        await until(whole, 10.0)
        facts = await services.store.waits.run(run)
        assert not facts.in_hands, f"{run}: leased to {facts.in_hands}"
        assert (await services.store.checks.find("tokens", "", 1000))[0] == []
        assert not services.repairs.done, services.repairs.last

    async def _beat(self) -> HeartbeatReply:
        holding = [block.held for block in self.hand.hand.held.values()]
        beat = Heartbeat("a", self.hand.vitals, holding, runs=self.workspace.names())
        return (await self.hand.hand.call("heartbeat", beat)).read(HeartbeatReply)

    def _forget(self, runs: Sequence[str]) -> None:
        for run in runs:
            self.workspace.release(run)

    async def _another_run_gets_through(self, run: str) -> None:
        await self._open_run(run, {})
        await self._put(run, BLOCK)
        left = BLOCK
        async with asyncio.timeout(15):
            while left:
                for block in await self.hand.lease(wait=1.0):
                    await self.hand.finish(block)
                    left -= block.size if block.run == run else 0
        assert (await self.center.admin.post(f"/api/v1/runs/{run}/finish")).status == 200
