"""The door: runs are opened here and requests are accepted. Run by centers only.

When `accept` returns, the requests are on disk. `on_accepted` tells the dispatcher, `moved`
everybody who works for a run that is in another state now.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence

from skep.jobs.request_validation import PLAIN, Validator, check_job
from skep.model.hosts.named_places import places_in
from skep.model.jobs.job import RunLease
from skep.model.request import Accepted, Offered
from skep.model.run import NewRun, Run, RunId, RunSettings
from skep.model.states import RunState
from skep.placement.allocator import Allocator
from skep.runtime.clock import Clock
from skep.store.ports import Store
from skep.store.ports.requests import RequestRow


class Intake:
    """Opens runs and accepts requests."""

    def __init__(
        self,
        store: Store,
        validator: Validator,
        clock: Clock,
        on_accepted: Callable[[], None],
        has_room: Callable[[], None] = lambda: None,
        allocator: Allocator | None = None,
        moved: Callable[[Run], Awaitable[None]] | None = None,
    ) -> None:
        self._moved = moved
        self._allocator = allocator
        self._store = store
        self._validator = validator
        self._clock = clock
        self._on_accepted = on_accepted
        #: Raises DiskFull when nothing more is to be taken.
        self.has_room = has_room

    async def open_run(
        self,
        run_id: RunId,
        new: NewRun,
        wait: float | None = 0.0,
        *,
        checked: bool = False,
        chosen: list[str] | None = None,
    ) -> tuple[Run, bool]:
        """(run, whether it is new). Opening a run twice gives the one that is there.

        A run that needs agents gets them now, after `wait` seconds at most; raises
        NotEnoughAgents, and then there is no run. `chosen` are what `await_agents` found.
        """
        if checked:  # of an application: no downloader could follow them
            pass
        elif new.settings.code is None:
            self._validator.check_settings(new.settings)
        else:  # a shell reads scripts, which takes some milliseconds
            await asyncio.to_thread(self._validator.check_settings, new.settings)
        job = new.job or run_id
        check_job(job)
        run = Run(run_id, job, RunState.RUNNING, new.settings, self._clock.now())
        agents = chosen
        if agents is None:
            agents = await self.await_agents(run_id, new.settings, wait)
        is_new = await self._store.runs.create(run)
        kept = run if is_new else await self._store.runs.get(run_id)
        if self._allocator is not None and kept.settings == new.settings:
            await self._allocator.keep(kept, agents)
        return kept, is_new

    async def await_agents(
        self, run_id: str, settings: RunSettings, wait: float | None
    ) -> list[str]:
        """Wait until a run that is about to start can have its agents, and choose them; raises
        NotEnoughAgents after `wait` seconds, None = at once. Nothing is kept."""
        if self._allocator is None:
            return []
        return await self._allocator.choose(run_id, settings, wait)

    async def allocate(self, run: Run) -> None:
        """Agents for a run whose settings were changed after it was opened."""
        if self._allocator is not None and run.state is RunState.RUNNING:
            await self._allocator.ensure(run)

    def check(
        self, offered: Sequence[Offered], priority: int, now: float, downloader: str = PLAIN
    ) -> list[RequestRow]:
        """Requests as they would be kept; raises InvalidInput that says which is wrong."""
        return self._validator.rows(offered, priority, now, downloader)

    async def accept(self, run_id: str, offered: Sequence[Offered]) -> Accepted:
        """Keep the requests of a run; raises before anything is stored."""
        self.has_room()
        run = await self._store.runs.get(run_id)
        now = self._clock.now()
        rows = self.check(offered, run.settings.priority, now, run.settings.downloader)
        await self.name_places(run, places_in(row.uri for row in rows))
        accepted = await self._store.requests.accept(run_id, rows, now)
        if accepted.new:
            self._on_accepted()
        return accepted

    async def name_places(self, run: Run, places: Collection[str]) -> None:
        """Keep loopback and private places that a person named for a run, before any request
        to them can be leased. Links never come here."""
        known = {*run.settings.named, *run.named}
        if added := [place for place in places if place not in known]:
            await self._store.runs.name_places(run.id, added)

    def wake_dispatcher(self) -> None:
        """Requests wait, again or by another way than `accept`: tell the dispatcher."""
        self._on_accepted()

    async def move(
        self, run_id: str, to: RunState, reason: str = "", lease: RunLease | None = None
    ) -> Run:
        """Pause, continue, finish or cancel a run; `reason` is kept with it. With `lease` as
        the center that supervises the run; raises LostLease."""
        now = self._clock.now()
        run = await self._store.runs.move(run_id, to, reason, now, lease)
        if to in {RunState.CANCELLED, RunState.FINISHED}:
            await self._store.requests.cancel(run_id, now)
        if to is RunState.RUNNING:
            self._on_accepted()
        if self._moved is not None:
            await self._moved(run)
        return run
