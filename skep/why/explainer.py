"""Collects the facts for an explanation and creates it. Run by centers only.

A few short reads for each question, never a scan; it writes nothing. A bus that is down is a
reason among others, not an error: that is when users ask.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from skep.bus.ports import Bus
from skep.errors import BusDown, UnknownRun
from skep.lanes.dispatch import lane_limits
from skep.model.hosts.politeness import Politeness
from skep.model.jobs.fire import ON_THEIR_WAY, Fire
from skep.model.jobs.generator_progress import part_of
from skep.model.jobs.job import Job
from skep.model.lane import Lane
from skep.model.run import Run
from skep.model.states import CLAIMABLE, BlockState, RunState
from skep.model.wait_reasons import Why
from skep.runtime.clock import Clock
from skep.settings import Settings
from skep.store.ports import Store
from skep.store.ports.waits import BlockFacts
from skep.why.apps import why_app
from skep.why.blocks import View, why_block
from skep.why.chains import absence
from skep.why.fleet import Fleet, Needs, obstacles
from skep.why.hosts import Asker, why_host
from skep.why.jobs import JobWait, why_job
from skep.why.requests import why_request
from skep.why.runs import why_run
from skep.why.supervision import SupervisionFacts

#: Due times of a job that are read to find the last one with an outcome.
FIRES = 20


class Explainer:
    """The explanations of one center. `restart_at` returns when the spider of a run restarts,
    `full` why the disk is full ("" = it is not)."""

    def __init__(
        self,
        settings: Settings,
        store: Store,
        bus: Bus,
        politeness: Politeness,
        clock: Clock,
        restart_at: Callable[[str], float | None],
        full: Callable[[], str],
    ) -> None:
        self._alive_after = settings.center.alive_after
        self._limits = lane_limits(settings.lanes)
        self._store = store
        self._bus = bus
        self._politeness = politeness
        self._clock = clock
        self._restart_at = restart_at
        self._full = full

    async def request(self, request_id: int) -> Why:
        """Raises NotFound."""
        wait = await self._store.waits.request(request_id)
        ahead = None
        if wait.block is not None and wait.block.state is BlockState.USING:
            ahead = (await self._store.waits.block(wait.block.id)).ahead
        return why_request(wait, await self._view(wait.run, wait.block), ahead)

    async def block(self, block_id: int) -> Why:
        """Raises UnknownBlock."""
        wait = await self._store.waits.block(block_id)
        return why_block(wait, await self._view(wait.run, wait.block))

    async def run(self, run_id: str) -> Why:
        """Raises UnknownRun."""
        wait = await self._store.waits.run(run_id)
        kept = await self._store.job_runs.get(run_id)
        care = None
        if kept is not None:
            generations = await self._store.generations.of(run_id)
            care = SupervisionFacts(kept, self._restart_at(run_id), generations)
        view = await self._view(wait.run)
        view = replace(view, belonging=await self._belonging(wait.run, view))
        instances = await self._store.apps.of(run_id)
        if instances and wait.run.state is RunState.RUNNING:
            return why_app(wait.run, instances, view)
        return why_run(wait, view, care)

    async def site(self, host: str) -> Why:
        """Explains unknown hosts too."""
        facts = await self._store.waits.site(host)
        fleet = await self._fleet()
        asker = Asker(fleet.now, self._politeness)
        return why_host(facts, obstacles(fleet, Needs()), asker)

    async def job(self, name: str) -> Why:
        """Raises UnknownJob."""
        store = self._store
        kept = await store.jobs.get(name)
        planned = await store.fires.planned([name])
        going = (await store.job_runs.going([name])).get(name, [])
        wait = JobWait(
            kept=kept,
            planned=planned[0] if planned else None,
            pending=await store.fires.pending([name]),
            last=_with_outcome(await store.fires.of_job(name, FIRES)),
            going=going,
            run=await self._going(going),
            generators=await store.fires.planned(_parts(kept.job)),
        )
        return why_job(wait, self._clock.now())

    async def _going(self, runs: Sequence[str]) -> Why | None:
        """Why the newest run waits; None when no center has opened it yet."""
        try:
            return await self.run(runs[0]) if runs else None
        except UnknownRun:
            return None

    async def _view(self, run: Run, block: BlockFacts | None = None) -> View:
        """The facts around a run; for a block that should be in a lane also the blocks in lanes."""
        view = View(await self._fleet(), self._politeness, chosen=await self._chosen(run))
        if block is None or block.state not in CLAIMABLE or view.fleet.lanes is None:
            return view
        return replace(view, in_lanes=frozenset(await self._bus.lanes.ids()))

    async def _belonging(self, run: Run, view: View) -> dict[str, int]:
        """Requests that wait for agents of a chain that are not available."""
        if not run.settings.placement.traits.chains:
            return {}
        away = [agent for agent in view.chosen or () if absence(view.fleet, agent)]
        belonging = self._store.allocations.belonging
        return {agent: await belonging(run.id, agent) for agent in away}

    async def _chosen(self, run: Run) -> frozenset[str] | None:
        if not run.settings.placement.traits.chooses:
            return None
        allocation = await self._store.allocations.get(run.id)
        return frozenset(allocation.agents if allocation else ())

    async def _fleet(self) -> Fleet:
        agents = await self._store.agents.all()
        lanes: dict[Lane, tuple[int, int]] | None = None
        trouble = ""
        try:
            sizes = await self._bus.lanes.sizes()
            lanes = {lane: (sizes.get(lane, 0), self._limits[lane]) for lane in Lane}
        except BusDown as error:
            trouble = error.detail
        now = self._clock.now()
        return Fleet(now, self._alive_after, agents, lanes, trouble, self._full())


def _parts(job: Job) -> list[str]:
    """Schedules of generators with their own cron line."""
    return [part_of(job.name, one.name) for one in job.generators if one.cron]


def _with_outcome(fires: list[Fire]) -> Fire | None:
    return next((fire for fire in fires if fire.state not in ON_THEIR_WAY), None)
