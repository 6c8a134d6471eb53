"""Runs of jobs: started, once per key, fed, paused, continued and stopped. Centers only.

A start is one row in the store; everything after it can be done again by any center, so a
center that dies over it leaves nothing half done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from skep.errors import (
    Conflict,
    InvalidInput,
    LostLease,
    NotEnoughAgents,
    SkepError,
    UnknownRun,
)
from skep.jobs.context import JobContext
from skep.jobs.generators.generator_feed import Feeder
from skep.model.jobs.generator_progress import fire_key_of, split_part
from skep.model.jobs.job import ARGUMENTS_LIMIT, Argument, Job, JobRun, KeptJob
from skep.model.run import NewRun, Run, RunSettings
from skep.model.states import RunState
from skep.runtime.ids import new_id

KEY_LIMIT = 150
#: For putting the requests in; then any center may see to it.
START_SECONDS = 30.0


class RunStarts:
    """Starts runs of jobs and says what becomes of them."""

    def __init__(
        self, context: JobContext, feeder: Feeder, agents_wait: Callable[[], float]
    ) -> None:
        """`agents_wait`: seconds that a run which was begun before waits for its agents."""
        self._agents_wait = agents_wait
        #: Runs that `start_run` is preparing now. The supervisor of this center holds the same
        #: lease: if it prepared them as well, it would choose agents again and could give up.
        self.preparing: set[str] = set()
        self._center = context.center
        self._store = context.store
        self._intake = context.intake
        self._feeder = feeder
        self._clock = context.clock
        self._rng = context.rng

    async def start_run(
        self,
        job: str,
        fire_key: str = "",
        wait: float | None = None,
        arguments: Mapping[str, Argument] | None = None,
    ) -> str:
        """The id of the run that this key started, now or before; "" is a new key. Of
        `job#generator` it is a run of that one generator. `arguments` are for this run alone.

        Raises UnknownJob, and Conflict for a job that is off or deleted. Waits up to `wait`
        seconds for the agents that the job asks for, None = not at all; raises NotEnoughAgents,
        and then the key is not used up.
        """
        job, generator = split_part(job)
        if len(fire_key) > KEY_LIMIT or not fire_key.isprintable():
            raise InvalidInput(f"a key has at most {KEY_LIMIT} printable characters")
        kept = await self._store.jobs.get(job)
        now = self._clock.now()
        run = new_id(job, now, self._rng)
        fire_key = fire_key_of(generator, fire_key or f"once {run}") if generator else fire_key
        if fire_key and (known := await self._store.job_runs.fired(job, fire_key)):
            return known.run
        _check_startable(kept, generator)
        told = _arguments_of(kept.job, arguments or {})
        settings = kept.job.run_settings(RunSettings())
        try:
            agents = await self._intake.await_agents(run, settings, wait)
        except NotEnoughAgents as error:
            if not fire_key:  # started by hand: the job's list of runs says why
                await self._store.job_runs.begin(_not_started(run, kept, now, error))
            raise
        now = self._clock.now()
        # Held from the first moment, so that no other center feeds it at the same time.
        new = JobRun(
            run,
            job,
            fire_key or f"once {run}",
            kept.revision,
            now,
            holder=self._center,
            held_until=now + START_SECONDS,
            lease=1,
            arguments=told,
        )
        return await self._begin(new, agents)

    async def _begin(self, new: JobRun, agents: list[str]) -> str:
        """Store the run and prepare it, or return the run that another center began."""
        self.preparing.add(new.run)
        try:
            begun = await self._store.job_runs.begin(new)
            if begun.run == new.run:
                await self.prepare(begun, agents)
        finally:
            self.preparing.discard(new.run)
        return begun.run

    async def prepare(self, begun: JobRun, agents: list[str] | None = None) -> None:
        """Open the run and put its requests in; repeating it changes nothing. `agents` were
        chosen for it before: a store that stalls meanwhile does not undo the choice. Without
        them the run waits for agents, since a stall also makes live agents look dead."""
        job = (await self._store.jobs.revision(begun.job, begun.revision)).job
        try:
            new = NewRun(job.name, job.run_settings(RunSettings()))
            app, wait = job.app is not None, self._agents_wait()
            run, _ = await self._intake.open_run(begun.run, new, wait, checked=app, chosen=agents)
            if run.state in ENDED:  # a center died between its end and the end of the job's run
                return
            if not begun.fed and job.spider is None and job.app is None:
                await self._feeder.requests(begun.run, job)
        except (InvalidInput, NotEnoughAgents) as error:
            await self._give_up(begun, error)
            raise
        await self._store.job_runs.note(begun.proof, fed=True)

    async def _give_up(self, begun: JobRun, error: SkepError) -> None:
        try:
            await self._intake.move(begun.run, RunState.CANCELLED, error.detail, begun.proof)
        except LostLease:  # another center starts it by now
            return
        except SkepError:  # it was never opened
            pass
        outcome = f"could not start: {error.detail}"
        await self._store.job_runs.note(begun.proof, open=False, outcome=outcome)

    async def driven(self, run: Run, spiders: RunSettings) -> Run:
        """A spider's process has come: what its class says counts where the job says nothing."""
        kept = await self._store.job_runs.get(run.id)
        if kept is None:
            return run
        job = (await self._store.jobs.revision(kept.job, kept.revision)).job
        if not await self._store.job_runs.adjust(run.id, job.run_settings(spiders)):
            return run
        return await self._store.runs.get(run.id)

    # -- what people and schedules ask about runs

    async def going(self, jobs: Sequence[str]) -> dict[str, list[str]]:
        """Runs that have not ended, of those jobs (or `job#generator`) that have any, newest
        first. Runs of a generator alone are not the job's. One that has failed may wait for a
        person for ever: it keeps no due time from its run."""
        return await self._store.job_runs.going(jobs, parts=True, failed=False)

    async def update_run(self, run_id: str, *, keep: bool = False) -> int | None:
        """Let what is left of a job's run follow the job's current revision, or with `keep` its
        own. Returns that revision; None for a run that no job started. The agents stay as they
        were chosen."""
        job_run = await self._store.job_runs.get(run_id)
        if job_run is None:
            return None
        kept = await self._store.jobs.get(job_run.job)
        if keep or kept.deleted or kept.revision == job_run.revision:
            return job_run.revision
        before = (await self._store.runs.get(run_id)).settings
        # A spider's class has settings of its own, which only its process knows.
        under = RunSettings() if kept.job.spider is None else before
        after = msgspec.structs.replace(kept.job.run_settings(under), placement=before.placement)
        await self._store.job_runs.revise(run_id, kept.revision, after)
        return kept.revision

    async def stop_run(self, run: str, reason: str = "") -> None:
        """Cancel it; nothing happens when it has ended, or waits for its agents and is not open."""
        try:
            await self._intake.move(run, RunState.CANCELLED, reason)
        except (Conflict, UnknownRun):
            return

    async def pause(self, job: str) -> list[Run]:
        """Every run that is running."""
        return await self._moved(job, (RunState.RUNNING,), RunState.PAUSED)

    async def resume(self, job: str) -> list[Run]:
        """Every run that rests."""
        return await self._moved(job, RESTING, RunState.RUNNING)

    async def stop(self, job: str) -> list[Run]:
        """Every run that has not ended."""
        return await self._moved(job, (RunState.RUNNING, *RESTING), RunState.CANCELLED)

    async def _moved(self, job: str, wanted: Sequence[RunState], to: RunState) -> list[Run]:
        """Raises UnknownJob, and Conflict when there is nothing to move."""
        await self._store.jobs.get(job)
        reason = "" if to is RunState.RUNNING else f"{to} by message to job {job}"
        moved: list[Run] = []
        for name in (await self._store.job_runs.going([job])).get(job, []):
            try:
                run = await self._store.runs.get(name)
            except UnknownRun:  # begun, and waits for its agents: the others are moved all the same
                continue
            if run.state in wanted:
                moved.append(await self._intake.move(name, to, reason))
        if not moved:
            states = " or ".join(wanted)
            raise Conflict(f"job {job} has no run that is {states}; see `skep job show {job}`")
        return moved


ENDED = frozenset({RunState.FINISHED, RunState.CANCELLED})
#: Until a person says so, nothing is done for them.
RESTING = (RunState.PAUSED, RunState.FAILED)


def _not_started(run: str, kept: KeptJob, now: float, error: SkepError) -> JobRun:
    outcome = f"could not start: {error.detail}"
    key = f"once {run}"
    return JobRun(run, kept.job.name, key, kept.revision, now, open=False, outcome=outcome)


def read_arguments(text: str) -> dict[str, Argument]:
    """Arguments of a call, as JSON; raises InvalidInput."""
    try:
        return msgspec.json.decode(text, type=dict[str, Argument]) if text else {}
    except msgspec.DecodeError:
        raise InvalidInput(
            "arguments: write a JSON object of names with texts, numbers or booleans"
        ) from None


def _arguments_of(job: Job, arguments: Mapping[str, Argument]) -> str:
    """As the store keeps them; raises InvalidInput when the job has no code to get them."""
    if not arguments:
        return ""
    if job.spider is None and all(part.traits.language is None for part in job.generators):
        raise InvalidInput(
            f"job {job.name} takes no arguments: it has neither a spider nor a generator with code"
        )
    text = msgspec.json.encode(arguments).decode()
    if len(text) > ARGUMENTS_LIMIT:
        raise InvalidInput(f"arguments of a run have at most {ARGUMENTS_LIMIT} characters as JSON")
    return text


def _check_startable(kept: KeptJob, generator: str) -> None:
    name = kept.job.name
    if generator and all(part.name != generator for part in kept.job.generators):
        raise InvalidInput(f"job {name} has no generator {generator!r}")
    if kept.deleted:
        raise Conflict(f"job {name} is deleted; apply it again to bring it back")
    if not kept.job.enabled:
        raise Conflict(f"job {name} is switched off; `skep job enable {name}` turns it on")
