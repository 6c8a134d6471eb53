"""Handles runs whose agents are gone, and allocations of runs that have ended. Centers only.

Blocks for absent agents are unpacked, so that other agents get their requests and the lanes do not
fill up. A chained run whose agent is gone stops, waits, or restarts its chains on another agent,
according to its settings. Any center can run every step, and repeat it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Sequence

from skep.errors import BusDown, Conflict, NotEnoughAgents, UnknownRun
from skep.model.run import Run
from skep.model.states import RunState
from skep.placement.allocator import AllocationParts
from skep.settings import CenterSettings
from skep.store.ports.placement import Allocation, AllocationSlot

log = logging.getLogger(__name__)

#: Rows of one step; the next step continues.
STEP_LIMIT = 500


class GoneAgents:
    """Runs its steps in a loop of the center.

    `forget` takes blocks out of the lanes, `withdraw` everything of some runs, `on_change`
    wakes the dispatcher and the drivers, `moved` tells every process that works for a run that has
    failed.
    """

    def __init__(
        self,
        settings: CenterSettings,
        parts: AllocationParts,
        forget: Callable[[Sequence[int]], Awaitable[int]],
        withdraw: Callable[[Collection[str]], Awaitable[int]],
        on_change: Callable[[], None],
        moved: Callable[[Run], Awaitable[None]] | None = None,
    ) -> None:
        self._moved = moved
        self._settings = settings
        self._store, self._clock, self._rng = parts.store, parts.clock, parts.rng
        self._roster, self._placer = parts.roster, parts.placer
        self._allocator = parts.allocator
        self._forget = forget
        self._withdraw = withdraw
        self._on_change = on_change
        self._warned: set[tuple[str, str]] = set()

    async def step(self) -> None:
        """Release allocations, complete starts, retarget blocks, check chains."""
        await self.release()
        await self._placer.refresh()
        await self._heal()
        if not self._roster.may_judge:
            return
        await self.retarget()
        for allocation in self._placer.open:
            chains = allocation.settings.placement.traits.chains
            if allocation.state is RunState.RUNNING and chains:
                await self._mind(allocation)

    async def release(self) -> None:
        """Release the agents of ended runs. Their blocks leave the lanes first: without an
        allocation no agent could take them out."""
        ended = [one.run for one in await self._store.allocations.ended(STEP_LIMIT)]
        if not ended:
            return
        try:
            await self._withdraw(ended)
        except BusDown:
            log.warning("%d ended runs keep their agents until the bus responds", len(ended))
            return
        for allocation in await self._store.allocations.release(ended, self._clock.now()):
            log.info("run %s has ended and releases its agents", allocation.run)
            await self._allocator.tell(allocation, "release")

    async def _heal(self) -> None:
        """Choose agents for runs whose center died before it did."""
        for name in sorted(self._placer.unallocated):
            try:
                run = await self._store.runs.get(name)
                if run.state is RunState.RUNNING and not await self._being_started(name):
                    await self._allocator.ensure(run)
            except NotEnoughAgents as error:
                await self._fail(name, error.detail)
            except UnknownRun:
                continue
        self._placer.unallocated = set()

    async def _being_started(self, name: str) -> bool:
        """Whether the center that supervises it still waits for its agents."""
        begun = await self._store.job_runs.get(name)
        return begun is not None and begun.open and not begun.fed

    async def retarget(self) -> int:
        """Unpack blocks for absent agents; their requests are placed again."""
        targets = await self._store.allocations.targets()
        lost = [target for target in targets if not self._placer.reachable(target)]
        if not lost:
            return 0
        blocks = await self._store.allocations.unpack(lost, self._clock.now(), STEP_LIMIT)
        if blocks:
            log.info("%d blocks for %s were unpacked", len(blocks), ", ".join(lost)[:200])
            try:
                await self._forget(blocks)
            except BusDown:  # they may stay in a lane: a block without a row cannot be leased
                log.warning("the bus does not respond: unpacked blocks stay in lanes for now")
            self._on_change()
        return len(blocks)

    # -- chains

    async def _mind(self, allocation: Allocation) -> None:
        there = [agent for agent in allocation.agents if not await self._left(allocation, agent)]
        for seat in allocation.seats:
            if seat.agent in there:
                continue
            count = await self._store.allocations.belonging(allocation.run, seat.agent)
            if seat.until is not None:
                if count:
                    await self._restart(allocation, seat, _successor_of(allocation, seat))
            elif count or not there:
                await self._decide(allocation, seat, count)
        if any(seat.until is not None for seat in allocation.seats):
            await self._rejoin(allocation)

    def _gone(self, agent: str) -> bool:
        """Whether the agent is dead, not only disabled."""
        return self._roster.view(agent) is None or self._roster.given_up(agent)

    async def _left(self, allocation: Allocation, agent: str) -> bool:
        """Whether the agent is dead, or is being drained and holds no more blocks."""
        if self._gone(agent):
            return True
        view = self._roster.view(agent)
        if view is None or not view.draining:
            return False
        hands = (await self._store.waits.run(allocation.run)).in_hands
        return all(hand.agent != agent for hand in hands)

    async def _absence(self, seat: AllocationSlot) -> tuple[str, float]:
        """(why an agent is absent, seconds beyond the usual silence)."""
        view, now = self._roster.view(seat.agent), self._clock.now()
        if view is not None and view.draining and not self._gone(seat.agent):
            orders = await self._store.agents.commands(seat.agent)
            since = next((one.made_at for one in orders if one.name == "drain"), now)
            return f"agent {seat.agent} is being drained", now - since
        since = view.seen_at if view else seat.since
        silent = 0.0 if self._roster.alive(seat.agent) else now - since
        words = f"agent {seat.agent} is gone: it has been silent for {silent:.0f} s"
        return words, silent - self._settings.alive_after

    async def _decide(self, allocation: Allocation, seat: AllocationSlot, count: int) -> None:
        placement = allocation.settings.placement
        words, away = await self._absence(seat)
        theirs = "1 open request belongs" if count == 1 else f"{count} open requests belong"
        why = f"{words}, and {theirs} to it ({placement.in_words()})"
        over = away >= placement.patience
        if placement.when_gone == "restart" and (to := self._successor(allocation, seat)):
            await self._replace(allocation, seat, to, why)
        elif placement.when_gone == "stop":
            await self._fail(allocation.run, f"{why}; the run stops, as it was told to")
        elif over:
            waited = f"{placement.patience:g} s"
            await self._fail(allocation.run, f"{why}; waited {waited} for it")
        elif (allocation.run, seat.agent) not in self._warned:
            self._warned.add((allocation.run, seat.agent))
            now = self._clock.now()
            await self._store.alerts.raise_("agent_gone", allocation.run, why, now)

    def _successor(self, allocation: Allocation, seat: AllocationSlot) -> str:
        """An agent without a slot of the run if there is one, else another agent of the run; "" =
        none. An agent that was replaced before and is back counts as new: its chains restart
        anyway."""
        others = [agent for agent in allocation.agents if agent != seat.agent]
        fresh = [view.id for view in self._placer.fitting(allocation.settings)]
        fresh = sorted(set(fresh) - set(allocation.agents))
        choice = fresh or [agent for agent in others if self._placer.present(agent)]
        return self._rng.choice(choice) if choice else ""

    async def _replace(
        self, allocation: Allocation, seat: AllocationSlot, to: str, why: str
    ) -> None:
        run, now = allocation.run, self._clock.now()
        if not await self._store.allocations.replace(run, seat.agent, to, why, now):
            return
        await self._store.alerts.raise_("agent_gone", run, f"{why}; {to} takes over", now)
        kept = await self._store.allocations.get(run)
        if kept is not None:
            self._placer.learn(kept)
            await self._allocator.tell(kept, "allocate")
        await self._restart(allocation, seat, to)

    async def _restart(self, allocation: Allocation, seat: AllocationSlot, to: str) -> None:
        # Blocks first: their requests belong to the chain too.
        await self.retarget()
        now = self._clock.now()
        count = await self._store.allocations.restart_chains(allocation.run, seat.agent, to, now)
        if count:
            log.warning("run %s: %d chains of %s restart", allocation.run, count, seat.agent)
            self._on_change()

    async def _rejoin(self, allocation: Allocation) -> None:
        lost = await self._store.allocations.rejoin(allocation.run)
        if lost:
            await self._fail(
                allocation.run,
                f"{len(lost)} chains could not begin again: their first requests failed on"
                f" another agent, request {lost[0]} among them",
            )

    async def _fail(self, run: str, why: str) -> None:
        try:
            failed = await self._store.runs.move(run, RunState.FAILED, why, self._clock.now())
        except Conflict:  # it ended meanwhile
            return
        log.warning("run %s has failed: %s", run, why)
        self._on_change()
        if self._moved is not None:
            await self._moved(failed)


def _successor_of(allocation: Allocation, seat: AllocationSlot) -> str:
    """The agent that has the slot of an agent that was given up."""
    same = [one.agent for one in allocation.seats if one.until is None and one.slot == seat.slot]
    return (same or allocation.agents or [seat.agent])[0]
