"""Supervises the job runs leased to this center until they end.

A run of requests is finished when all have ended. A spider runs in a process outside the
center and is restarted after a crash, with growing delays and a limited number of times. The
center must renew its leases regularly and stops work on a lost one at once. Two spiders on one
run are harmless: the token of the newer driver fences the older one out.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

from skep.errors import ConfigurationError, Conflict, InvalidInput, LostLease, SkepError
from skep.jobs.apps.app_supervisor import AppSupervisor
from skep.jobs.context import JobContext
from skep.jobs.definitions.job_repository import Scheduler
from skep.jobs.generators.generator_feed import Feeder
from skep.jobs.runs.delivery import Deliverer
from skep.jobs.runs.run_retry import RunRetries
from skep.jobs.runs.run_start import ENDED, RunStarts
from skep.jobs.runs.run_wake_ups import RunWakeUps
from skep.jobs.runs.spider_process import Spawner, SpiderCommand, SpiderProcess
from skep.model.jobs.job import Job, JobRun, SpiderPart
from skep.model.run import Run
from skep.model.states import RunState
from skep.runtime.backoff import Backoff

log = logging.getLogger(__name__)

#: Exit codes of a spider's process: it finished successfully; a restart cannot fix it.
GOOD, HOPELESS = 0, frozenset({1, 2})
#: Seconds after which the end of a process is not a failed start.
STEADY_SECONDS = 60.0
ALERT = "job_failed"


#: A process of a run has begun or ended: (run, kind, what).
Acknowledged = Callable[[str, str, str], Awaitable[None]]


class Passes(Protocol):
    """Tokens that are good for one run."""

    async def issue(self, run: str) -> str: ...

    async def withdraw(self, run: str, token: str = "") -> None: ...


class SupervisedRun(NamedTuple):
    """What this center does for one run, and the lease under which it does it."""

    lease: int
    task: asyncio.Task[None]


@dataclass(frozen=True, slots=True)
class RunWorkers:
    """What does the work of a run for its supervisor."""

    starts: RunStarts
    feeder: Feeder
    spawner: Spawner
    passes: Passes
    apps: AppSupervisor
    deliverer: Deliverer
    scheduler: Scheduler


@dataclass(frozen=True, slots=True)
class RunLinks:
    """How a supervisor and the other parts of its center reach each other."""

    wake_ups: RunWakeUps
    acknowledged: Acknowledged
    #: Where children find this center; "" as long as it does not serve.
    address: Callable[[], str]


class RunSupervisor:
    """One center's part in running jobs."""

    def __init__(self, context: JobContext, workers: RunWorkers, links: RunLinks) -> None:
        self._center = context.center
        self._settings = settings = context.settings
        self._store = context.store
        self._intake = context.intake
        self._clock = context.clock
        self._rng = context.rng
        self._starts = workers.starts
        self._feeder = workers.feeder
        self._spawner = workers.spawner
        self._passes = workers.passes
        self._apps = workers.apps
        self._deliverer = workers.deliverer
        self._scheduler = workers.scheduler
        self._wake_ups = links.wake_ups
        self._acknowledged = links.acknowledged
        self._address = links.address
        self._restart = Backoff(first=settings.restart_first, cap=settings.restart_cap)
        self._chances = RunRetries(context.store, self._restart, context.clock, context.rng)
        self._cares: dict[str, SupervisedRun] = {}
        #: Processes of spiders that run now, by run.
        self.children: dict[str, SpiderProcess] = {}
        #: When crashed spiders are started again, by run.
        self.restarts: dict[str, float] = {}

    async def step(self) -> None:
        """Claim runs, start supervising new ones, stop supervising those that were lost."""
        now = self._clock.now()
        until = now + self._settings.lease_seconds
        limit = self._settings.runs_limit if self._address() else 0
        held = await self._store.job_runs.claim(self._center, now, until, limit)
        for job_run in held:
            if job_run.run not in self._cares and job_run.run not in self._starts.preparing:
                self._wake_ups.add(job_run.run)
                task = asyncio.create_task(self._supervised(job_run))
                self._cares[job_run.run] = SupervisedRun(job_run.lease, task)
        mine = {job_run.run: job_run.lease for job_run in held}
        for run, care in self._cares.items():
            # A run that was lost and taken back meanwhile is begun anew under its new lease.
            if mine.get(run) != care.lease:
                log.warning("lost the lease of run %s to another center", run)
                care.task.cancel()

    async def stop(self) -> None:
        """Children end at once (what they told is safe); others may take the runs."""
        cares = [care.task for care in self._cares.values()]
        for task in cares:
            task.cancel()
        await asyncio.gather(*cares, return_exceptions=True)
        with suppress(SkepError):  # else their time runs out by itself
            await self._store.job_runs.release(self._center)

    async def _supervised(self, held: JobRun) -> None:
        try:
            await self._supervise(held)
            # Continued while we let go of it: a step in between has passed it over.
            self._wake_ups.claims.notify()
        except ConfigurationError as error:
            # A sink that was good when the job was kept, and is not here and now.
            await self._misconfigured(held, error.detail)
        except SkepError as error:
            # The store is away, or the run was changed under us: the next step looks again.
            log.warning("run %s of job %s: %s", held.run, held.job, error.detail)
        except Exception:
            log.exception("unexpected error in run %s of job %s", held.run, held.job)
        finally:
            del self._cares[held.run]
            self._wake_ups.remove(held.run)

    async def _misconfigured(self, held: JobRun, reason: str) -> None:
        try:
            await self._fail(held, await self._store.runs.get(held.run), reason)
            await self._alert(held, reason)
            await self._store.job_runs.release(self._center, held.proof)
        except SkepError as error:  # another center has the run, or the store is away
            log.warning("run %s of job %s: %s", held.run, held.job, error.detail)

    async def _note(self, held: JobRun, **facts: Any) -> None:
        """Raises LostLease when another center has taken the run."""
        if not await self._store.job_runs.note(held.proof, **facts):
            raise LostLease(f"run {held.run} is not held by center {self._center} any more")

    async def _supervise(self, held: JobRun) -> None:
        if not held.fed:
            await self._starts.prepare(held)
        job = (await self._store.jobs.revision(held.job, held.revision)).job
        await self._deliverer.open(held, job.sinks if job.spider else ())
        if job.app is not None:
            look = partial(self._state, held, job)
            rest = partial(self._wake_ups.wait, held.run)
            run, said = await self._apps.follow(held, job.app, look, rest)
        elif job.spider is None:
            run, said = await self._follow(held, job)
        else:
            run, said = await self._drive(held, job, job.spider)
        if run.state in ENDED:
            left = await self._deliverer.settle(held) if job.sinks else ""
            said = "; ".join(filter(None, [said, left]))
            await self._close(held, run, said, counted=job.app is None)
        else:
            await self._store.job_runs.release(self._center, held.proof)

    async def _close(self, held: JobRun, run: Run, said: str, *, counted: bool = True) -> None:
        ledger = await self._store.ledgers.read(run.id)
        counts = f"{ledger.done} done, {ledger.dead} dead, {ledger.cancelled} cancelled"
        outcome = "; ".join(filter(None, [counts if counted else "", said]))
        outcome = f"{run.state}: {outcome}" if outcome else str(run.state)
        if run.state is RunState.FINISHED:
            # Before the row is closed: a center that dies in between tells it again.
            await self._scheduler.succeeded(held.job, held.run)
        await self._note(held, open=False, outcome=outcome)
        # Closed: no center starts a driver of it again.
        await self._passes.withdraw(held.run)
        log.info("run %s of job %s %s", held.run, held.job, outcome)

    # -- runs of requests

    async def _follow(self, held: JobRun, job: Job) -> tuple[Run, str]:
        """Until it rests or has ended, and why it failed; it ends by itself when its
        generators are through and nothing is left to do."""
        feeding = asyncio.create_task(self._feeder.feed(held, job))
        await self._acknowledged(held.run, "generators", "began")
        try:
            run, said = await self._followed(held, job, feeding)
        finally:
            feeding.cancel()
            await asyncio.gather(feeding, return_exceptions=True)
            await self._acknowledged(held.run, "generators", "ended")
        await self._feeder.clear(held, job, run.state)
        return run, said

    async def _followed(
        self, held: JobRun, job: Job, feeding: asyncio.Task[str]
    ) -> tuple[Run, str]:
        while (run := await self._state(held, job)).state is RunState.RUNNING:
            if feeding.done() and (reason := feeding.result()):
                await self._note(held, outcome=reason)
                return await self._fail(held, run, reason), reason
            # Asked in this order: what a generator put in before its end is in the ledger.
            if feeding.done() and not (ledger := await self._store.ledgers.read(run.id)).open:
                if await self._chances.another_round(held, job, ledger.dead):
                    self._intake.wake_dispatcher()
                    continue
                return await self._intake.move(run.id, RunState.FINISHED, "", held.proof), ""
            await self._wake_ups.wait(held.run, self._settings.keep_every)
        return run, ""

    async def _state(self, held: JobRun, job: Job) -> Run:
        """The run as it is now; one that is over its time limit is stopped. Raises LostLease
        when it is another center's to ask."""
        if not await self._store.job_runs.holds(held.proof):
            raise LostLease(f"run {held.run} is not held by center {self._center} any more")
        run = await self._store.runs.get(held.run)
        limit = job.chosen.run_time_limit
        if limit and run.state not in ENDED and self._clock.now() - held.at > limit:
            reason = f"it took longer than the {limit:g} s that its job allows"
            run = await self._intake.move(held.run, RunState.CANCELLED, reason, held.proof)
            await self._alert(held, reason)
        return run

    # -- runs of spiders

    async def _drive(self, held: JobRun, job: Job, part: SpiderPart) -> tuple[Run, str]:
        """Keep a process running; returns when the run rests or has ended, and the last line
        of the process when it failed."""
        starts, crashes = held.starts, 0
        while (run := await self._state(held, job)).state is RunState.RUNNING:
            began, starts = self._clock.monotonic(), starts + 1
            await self._note(held, starts=starts)
            code, tail = await self._live(held, job, part)
            await self._note(held, log=tail)
            run = await self._state(held, job)
            if run.state is not RunState.RUNNING:
                # It rests: because a person wants it to, or because its own spider gave up?
                failed = code > GOOD and run.state not in ENDED
                return run, await self._told(held, code, tail) if failed else ""
            steady = self._clock.monotonic() - began >= STEADY_SECONDS
            crashes = 1 if steady else crashes + 1
            if code in HOPELESS or crashes > part.restarts:
                reason = await self._told(held, code, tail)
                return await self._fail(held, run, reason), reason
            delay = self._restart.delay(crashes, self._rng)
            log.warning(
                "spider of run %s ended with code %s; restarting in %.1f s", held.run, code, delay
            )
            self.restarts[held.run] = self._clock.now() + delay
            try:
                await self._wake_ups.wait(held.run, delay)
            finally:
                del self.restarts[held.run]
        return run, ""

    async def _live(self, held: JobRun, job: Job, part: SpiderPart) -> tuple[int, str]:
        """One life of the process: (its exit code, the end of its log)."""
        token = await self._passes.issue(held.run)
        memory = job.chosen.memory_limit
        arguments = {**part.arguments, **held.chosen}
        order = SpiderCommand(held.run, part.path, arguments, self._address(), token, memory)
        try:
            child = await self._spawner.start(order)
        except OSError as error:
            return -1, f"could not be started: {error}"
        self.children[held.run] = child
        try:
            return await self._watched(held, job, child), child.tail()
        finally:
            del self.children[held.run]
            await child.kill()
            with suppress(SkepError):  # the store is away: it ends with the run
                await self._passes.withdraw(held.run, token)
            await self._acknowledged(held.run, "spider", "ended")

    async def _watched(self, held: JobRun, job: Job, child: SpiderProcess) -> int:
        """Its exit code. When the run rests or has ended, it gets a while to end."""
        deadline: float | None = None
        while (code := await self._ended(held, child)) is None:
            if deadline is not None and self._clock.monotonic() > deadline:
                await child.kill()
            elif deadline is None and (state := await self._state_if_known(held, job)):
                if state is RunState.RUNNING:
                    continue
                deadline = self._clock.monotonic() + self._settings.end_seconds
                if state not in ENDED:  # of an end it hears by itself
                    child.ask_to_end()
        return code

    async def _ended(self, held: JobRun, child: SpiderProcess) -> int | None:
        """Its exit code; None when it runs on after a while, or there is a word about it."""
        ending = asyncio.create_task(child.ended_within(self._settings.keep_every))
        poked = asyncio.create_task(self._wake_ups.wait(held.run))
        try:
            await asyncio.wait((ending, poked), return_when=asyncio.FIRST_COMPLETED)
            return ending.result() if ending.done() else None
        finally:
            ending.cancel()
            poked.cancel()

    async def _state_if_known(self, held: JobRun, job: Job) -> RunState | None:
        try:
            return (await self._state(held, job)).state
        except LostLease:
            raise
        except SkepError:  # the store is away: the child waits for it as well
            return None

    async def _fail(self, held: JobRun, run: Run, reason: str) -> Run:
        """Fail the run: a restart would not fix it, and an operator must act."""
        try:
            return await self._intake.move(held.run, RunState.FAILED, reason, held.proof)
        except LostLease:
            raise
        except (Conflict, InvalidInput):
            return run

    async def _told(self, held: JobRun, code: int, tail: str) -> str:
        lines = [line for line in tail.splitlines() if line.strip()]
        reason = f"its spider ended with {code}: {lines[-1][:500] if lines else 'no word'}"
        await self._note(held, outcome=reason)
        await self._alert(held, reason)
        return reason

    async def _alert(self, held: JobRun, detail: str) -> None:
        told = f"run {held.run}: {detail}"
        await self._store.alerts.raise_(ALERT, held.job, told, self._clock.now())
