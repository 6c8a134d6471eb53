"""Opens runs and accepts requests. Run by centers only.

Every request enters a run through `Intake.accept_from`, whatever its source: the disk check,
the limits, validation, named places, the count of accepted requests and the wake-up of the
dispatcher exist once. When it returns, the requests are on disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TypeVar

from skep.errors import SkepError
from skep.jobs.request_sources import Checked, Refused, RequestSource, Submission
from skep.jobs.request_validation import BATCH_LIMIT, Validator, check_job
from skep.model.jobs.job import RunLease
from skep.model.people.audit import AuditRow
from skep.model.request import Accepted, Offered
from skep.model.run import NewRun, Run, RunId, RunSettings
from skep.model.states import ENDED_RUN_STATES, RunState
from skep.placement.allocator import Allocator
from skep.runtime.clock import Clock
from skep.store.ports import Store

T = TypeVar("T")


def _nothing(*_args: object) -> None:
    """The default of a call that is not needed."""


async def _no_listener(_run: Run) -> None:
    """The default of `moved`."""


@dataclass(frozen=True, slots=True)
class IntakeCalls:
    """What the intake calls in other parts of a center."""

    #: Raises DiskFull when no more requests may be accepted.
    has_room: Callable[[], None] = _nothing
    #: Counts new requests.
    accepted: Callable[[int], None] = _nothing
    #: Tells the dispatcher that requests wait.
    wake_dispatcher: Callable[[], None] = _nothing
    #: Tells the processes of a run that its state has changed.
    moved: Callable[[Run], Awaitable[None]] = _no_listener


class Intake:
    """Opens runs, changes their state and accepts requests."""

    def __init__(
        self,
        store: Store,
        validator: Validator,
        clock: Clock,
        calls: IntakeCalls | None = None,
        allocator: Allocator | None = None,
    ) -> None:
        self._store = store
        self._validator = validator
        self._clock = clock
        self._calls = calls or IntakeCalls()
        self._allocator = allocator

    async def open_run(
        self,
        run_id: RunId,
        new: NewRun,
        wait: float | None = 0.0,
        *,
        checked: bool = False,
        chosen: list[str] | None = None,
    ) -> tuple[Run, bool]:
        """(run, whether it is new). Opening a run twice returns the existing one.

        A run that needs agents gets them now, after `wait` seconds at most; raises
        NotEnoughAgents, and then there is no run. `chosen` is the result of `await_agents`.
        """
        run = await self._new_run(run_id, new, checked=checked)
        agents = chosen
        if agents is None:
            agents = await self.await_agents(run_id, new.settings, wait)
        is_new = await self._store.runs.create(run)
        kept = run if is_new else await self._store.runs.get(run_id)
        await self._keep_agents(kept, new, agents)
        return kept, is_new

    async def open_begun(
        self, run_id: RunId, new: NewRun, wait: float, *, checked: bool, chosen: list[str] | None
    ) -> Run:
        """Open a run that a job has begun. It exists before it has its agents, so that users see it
        and can end it while it waits. Raises NotEnoughAgents after `wait` seconds."""
        run = await self._new_run(run_id, new, checked=checked)
        is_new = await self._store.runs.create(run)
        kept = run if is_new else await self._store.runs.get(run_id)
        if kept.state in ENDED_RUN_STATES:
            return kept
        agents = chosen
        if agents is None:
            agents = await self.await_agents(run_id, new.settings, wait)
            kept = await self._store.runs.get(run_id)
        if kept.state not in ENDED_RUN_STATES:
            await self._keep_agents(kept, new, agents)
        return kept

    async def _keep_agents(self, kept: Run, new: NewRun, agents: list[str]) -> None:
        if self._allocator is not None and kept.settings == new.settings:
            await self._allocator.keep(kept, agents)

    async def _new_run(self, run_id: RunId, new: NewRun, *, checked: bool) -> Run:
        if checked:  # settings of an application: downloaders do not support them
            pass
        elif new.settings.code is None:
            self._validator.check_settings(new.settings)
        else:  # a shell reads scripts, which takes some milliseconds
            await asyncio.to_thread(self._validator.check_settings, new.settings)
        job = new.job or run_id
        check_job(job)
        now = self._clock.now()
        return Run(run_id, job, RunState.RUNNING, new.settings, now, labels=new.labels)

    async def await_agents(
        self, run_id: str, settings: RunSettings, wait: float | None
    ) -> list[str]:
        """Wait until a run that is about to start can have its agents, and choose them; raises
        NotEnoughAgents after `wait` seconds, None = at once. Nothing is stored."""
        if self._allocator is None:
            return []
        return await self._allocator.choose(run_id, settings, wait)

    async def allocate(self, run: Run) -> None:
        """Choose agents for a run whose settings were changed after it was opened."""
        if self._allocator is not None and run.state is RunState.RUNNING:
            await self._allocator.ensure(run)

    async def accept_from(
        self, source: RequestSource[T], run_id: str, offered: Sequence[Offered]
    ) -> T:
        """Check requests and store them in the transaction of their source; returns its result.

        Raises DiskFull, UnknownRun, TooLarge and InvalidInput before anything is stored, and
        Conflict when the run has ended.
        """
        self._calls.has_room()
        run = await self._store.runs.get(run_id)
        now = self._clock.now()
        checked = self._checked(run.settings, offered, now, lenient=source.leaves_out_invalid)
        await self.name_places(run, source.named(checked.rows))
        result, new = await source.store(run_id, checked, now)
        if new:
            self._calls.accepted(new)
            self._calls.wake_dispatcher()
        return result

    async def accept(
        self, run_id: str, offered: Sequence[Offered], audit: AuditRow | None = None
    ) -> Accepted:
        """Store requests that a user or a program sent: all of them or none, with the audit row of
        the call."""
        return await self.accept_from(Submission(self._store, audit), run_id, offered)

    def check(self, request: Offered, settings: RunSettings) -> None:
        """Raises InvalidInput for a request that a run with these settings would not accept."""
        self._checked(settings, [request], 0.0, lenient=False)

    def _checked(
        self, settings: RunSettings, offered: Sequence[Offered], now: float, *, lenient: bool
    ) -> Checked:
        rules = settings.priority, now, settings.downloader
        try:
            return Checked(self._validator.rows(offered, *rules))
        except SkepError:
            if not lenient or len(offered) > BATCH_LIMIT:
                raise
        rows, refused = [], []
        for position, request in enumerate(offered):
            try:
                rows += self._validator.rows([request], *rules)
            except SkepError as error:
                refused.append(Refused(position, error))
        return Checked(rows, refused)

    async def name_places(self, run: Run, places: Collection[str]) -> None:
        """Store loopback and private places that a user named for a run, before any request to
        them can be leased. Links must never be passed here."""
        known = {*run.settings.named, *run.named}
        if added := [place for place in places if place not in known]:
            await self._store.runs.name_places(run.id, added)

    def wake_dispatcher(self) -> None:
        """Requests that were accepted before wait again: tell the dispatcher."""
        self._calls.wake_dispatcher()

    async def move(
        self, run_id: str, to: RunState, reason: str = "", lease: RunLease | None = None
    ) -> Run:
        """Pause, continue, finish or cancel a run; `reason` is stored with it. `lease` is that of
        the center that supervises the run; raises LostLease."""
        now = self._clock.now()
        run = await self._store.runs.move(run_id, to, reason, now, lease)
        if to in ENDED_RUN_STATES:
            await self._store.requests.cancel(run_id, now)
        if to is RunState.RUNNING:
            self._calls.wake_dispatcher()
        await self._calls.moved(run)
        return run
