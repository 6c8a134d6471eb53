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

from skep.errors import (
    CenterStopping,
    ConfigurationError,
    Conflict,
    InvalidInput,
    LostLease,
    SkepError,
)
from skep.jobs.apps.app_supervisor import AppSupervisor
from skep.jobs.context import JobContext
from skep.jobs.definitions.job_repository import Scheduler
from skep.jobs.generators.generator_feed import Feeder
from skep.jobs.runs.delivery import Deliverer
from skep.jobs.runs.run_retry import RunRetries
from skep.jobs.runs.run_start import RunStarts
from skep.jobs.runs.run_wake_ups import RunWakeUps
from skep.jobs.runs.spider_process import Spawner, SpiderCommand, SpiderProcess
from skep.logs.center.file_feeds import FileFeeds
from skep.model.jobs.job import Job, JobRun, SpiderPart
from skep.model.logs import LogSource, LogSourceKind
from skep.model.run import Run
from skep.model.states import ENDED_RUN_STATES, RunState
from skep.runtime.backoff import Backoff
from skep.runtime.log_repeats import KeyedRepeats, repeated

log = logging.getLogger(__name__)

#: Exit codes of a spider's process: success, and errors that a restart cannot fix.
GOOD, HOPELESS = 0, frozenset({1, 2})
#: Seconds after which the end of a process is not a failed start.
STEADY_SECONDS = 60.0
ALERT = "job_failed"


#: Reports that a process of a run has started or ended: (run, kind, what).
Acknowledged = Callable[[str, str, str], Awaitable[None]]


class Passes(Protocol):
    """Tokens that are valid for one run."""

    async def issue(self, run: str) -> str: ...

    async def withdraw(self, run: str, token: str = "") -> None: ...


class SupervisedRun(NamedTuple):
    """The supervision of one run, and the lease for it."""

    lease: int
    task: asyncio.Task[None]


@dataclass(frozen=True, slots=True)
class RunWorkers:
    """The parts that do the work of a run."""

    starts: RunStarts
    feeder: Feeder
    spawner: Spawner
    passes: Passes
    apps: AppSupervisor
    deliverer: Deliverer
    scheduler: Scheduler
    #: Feed the output of spiders into the store of log lines.
    feeds: FileFeeds


@dataclass(frozen=True, slots=True)
class RunLinks:
    """The connections between a supervisor and the other parts of its center."""

    wake_ups: RunWakeUps
    acknowledged: Acknowledged
    #: The address of this center for children; "" until it serves.
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
        self._feeds = workers.feeds
        self._wake_ups = links.wake_ups
        self._acknowledged = links.acknowledged
        self._address = links.address
        self._restart = Backoff(first=settings.restart_first, cap=settings.restart_cap)
        self._chances = RunRetries(context.store, self._restart, context.clock, context.rng)
        self._repeats = KeyedRepeats(context.clock)
        self._supervised_runs: dict[str, SupervisedRun] = {}
        #: Processes of spiders that run now, by run.
        self.children: dict[str, SpiderProcess] = {}
        #: When crashed spiders are restarted, by run.
        self.restarts: dict[str, float] = {}

    async def step(self) -> None:
        """Claim runs, start supervising new ones, stop supervising those that were lost."""
        now = self._clock.now()
        until = now + self._settings.lease_seconds
        limit = self._settings.runs_limit if self._address() else 0
        held = await self._store.job_runs.claim(self._center, now, until, limit)
        for job_run in held:
            if (
                job_run.run not in self._supervised_runs
                and job_run.run not in self._starts.preparing
            ):
                self._wake_ups.add(job_run.run)
                task = asyncio.create_task(self._supervised(job_run))
                self._supervised_runs[job_run.run] = SupervisedRun(job_run.lease, task)
        mine = {job_run.run: job_run.lease for job_run in held}
        for run, one in self._supervised_runs.items():
            # A run that was lost and leased again meanwhile restarts under its new lease.
            if mine.get(run) != one.lease:
                log.warning("lost the lease of run %s to another center", run)
                one.task.cancel()

    async def stop(self) -> None:
        """End the children (their reports are stored) and release the runs to other centers."""
        tasks = [one.task for one in self._supervised_runs.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        with suppress(SkepError):  # else the leases expire
            await self._store.job_runs.release(self._center)

    async def _supervised(self, held: JobRun) -> None:
        try:
            await self._supervise(held)
            # A run may have been continued just before its release: claim again.
            self._wake_ups.claims.notify()
        except ConfigurationError as error:
            # A sink that was valid when the job was stored cannot be opened here.
            await self._misconfigured(held, error.detail)
        except CenterStopping:
            pass  # another center continues, or this one when it is back
        except SkepError as error:
            # The store is unavailable, or the run was changed meanwhile: the next step retries.
            self._warn(held, error)
        except Exception:
            if self._repeats.due((held.run, "unexpected")):
                log.exception("unexpected error in run %s of job %s", held.run, held.job)
        finally:
            del self._supervised_runs[held.run]
            self._wake_ups.remove(held.run)

    def _warn(self, held: JobRun, error: SkepError) -> None:
        """The step is repeated as long as the condition lasts; the log is not."""
        if times := self._repeats.due((held.run, error.code)):
            often = repeated(times)
            log.warning("run %s of job %s: %s%s", held.run, held.job, error.detail, often)

    async def _misconfigured(self, held: JobRun, reason: str) -> None:
        try:
            await self._fail(held, await self._store.runs.get(held.run), reason)
            await self._alert(held, reason)
            await self._store.job_runs.release(self._center, held.proof)
        except SkepError as error:  # another center has the run, or the store is unavailable
            log.warning("run %s of job %s: %s", held.run, held.job, error.detail)

    async def _note(self, held: JobRun, **facts: Any) -> None:
        """Raises LostLease when another center has taken the run."""
        if not await self._store.job_runs.note(held.proof, **facts):
            raise LostLease(f"center {self._center} no longer holds the lease of run {held.run}")

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
        if run.state in ENDED_RUN_STATES:
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
            # Before the row is closed: a center that dies in between reports it again.
            await self._scheduler.succeeded(held.job, held.run)
        await self._note(held, open=False, outcome=outcome)
        # After this no center starts a driver for the run.
        await self._passes.withdraw(held.run)
        log.info("run %s of job %s %s", held.run, held.job, outcome)

    # -- runs of requests

    async def _follow(self, held: JobRun, job: Job) -> tuple[Run, str]:
        """Follow a run until it rests or has ended; return it, and why it failed. It finishes when
        its generators have finished and no request is open."""
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
            # In this order: requests of a generator are in the ledger before it ends.
            if feeding.done() and not (ledger := await self._store.ledgers.read(run.id)).open:
                if await self._chances.another_round(held, job, ledger.dead):
                    self._intake.wake_dispatcher()
                    continue
                return await self._intake.move(run.id, RunState.FINISHED, "", held.proof), ""
            await self._wake_ups.wait(held.run, self._settings.keep_every)
        return run, ""

    async def _state(self, held: JobRun, job: Job) -> Run:
        """The current run; cancels it when it exceeds its time limit. Raises LostLease when
        another center has the lease."""
        if not await self._store.job_runs.holds(held.proof):
            raise LostLease(f"center {self._center} no longer holds the lease of run {held.run}")
        run = await self._store.runs.get(held.run)
        limit = job.chosen.run_time_limit
        if limit and run.state not in ENDED_RUN_STATES and self._clock.now() - held.at > limit:
            reason = f"it took longer than its run_time_limit of {limit:g} s"
            run = await self._intake.move(held.run, RunState.CANCELLED, reason, held.proof)
            await self._alert(held, reason)
        return run

    # -- runs of spiders

    async def _drive(self, held: JobRun, job: Job, part: SpiderPart) -> tuple[Run, str]:
        """Keep a process running until the run rests or has ended; return the run, and the last
        line of the process when it failed."""
        starts, crashes = held.starts, 0
        while (run := await self._state(held, job)).state is RunState.RUNNING:
            began, starts = self._clock.monotonic(), starts + 1
            await self._note(held, starts=starts)
            code, tail = await self._live(held, job, part)
            await self._note(held, log=tail)
            run = await self._state(held, job)
            if run.state is not RunState.RUNNING:
                # It rests because a user paused it, or because its spider failed.
                failed = code > GOOD and run.state not in ENDED_RUN_STATES
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
        """Run the process once: (its exit code, the end of its log)."""
        source = LogSource(LogSourceKind.SPIDER, held.job, held.run)
        file = self._spawner.log_file(held.run)
        async with self._feeds.storing(file, source, held.lease):
            return await self._lived(held, job, part)

    async def _lived(self, held: JobRun, job: Job, part: SpiderPart) -> tuple[int, str]:
        token = await self._passes.issue(held.run)
        memory = job.chosen.memory_limit
        arguments = {**part.arguments, **held.chosen}
        order = SpiderCommand(held.run, part.path, arguments, self._address(), token, memory)
        try:
            child = await self._spawner.start(order)
        except OSError as error:
            return -1, f"cannot start: {error}"
        self.children[held.run] = child
        try:
            return await self._watched(held, job, child), child.tail()
        finally:
            del self.children[held.run]
            await child.kill()
            with suppress(SkepError):  # the store is unavailable: the token ends with the run
                await self._passes.withdraw(held.run, token)
            await self._acknowledged(held.run, "spider", "ended")

    async def _watched(self, held: JobRun, job: Job, child: SpiderProcess) -> int:
        """Its exit code. When the run rests or has ended, the process gets some time to end."""
        deadline: float | None = None
        while (code := await self._ended(held, child)) is None:
            if deadline is not None and self._clock.monotonic() > deadline:
                await child.kill()
            elif deadline is None and (state := await self._state_if_known(held, job)):
                if state is RunState.RUNNING:
                    continue
                deadline = self._clock.monotonic() + self._settings.end_seconds
                if state not in ENDED_RUN_STATES:  # it learns of an end by itself
                    child.ask_to_end()
        return code

    async def _ended(self, held: JobRun, child: SpiderProcess) -> int | None:
        """Its exit code; None when it still runs after a while, or after a wake-up."""
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
        except SkepError:  # the store is unavailable: the child waits for it as well
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
        reason = f"its spider ended with {code}: {lines[-1][:500] if lines else 'no output'}"
        await self._note(held, outcome=reason)
        await self._alert(held, reason)
        return reason

    async def _alert(self, held: JobRun, detail: str) -> None:
        told = f"run {held.run}: {detail}"
        await self._store.alerts.raise_(ALERT, held.job, told, self._clock.now())
