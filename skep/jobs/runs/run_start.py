"""Starts runs of jobs, once per key, and pauses, continues and stops them. Centers only.

A start is one row in the store; any center can repeat the steps after it, so a center that dies
during a start leaves nothing half done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from skep.errors import (
    Conflict,
    InvalidInput,
    LostLease,
    NotEnoughAgents,
    NotFound,
    SkepError,
    UnknownRun,
)
from skep.jobs.context import JobContext
from skep.jobs.generators.generator_feed import Feeder
from skep.model.jobs.generator_progress import fire_key_of, split_part
from skep.model.jobs.job import ARGUMENTS_LIMIT, Argument, Job, JobRun, KeptJob
from skep.model.labels import checked_labels
from skep.model.run import NewRun, Run, RunSettings
from skep.model.states import ENDED_RUN_STATES, RunState
from skep.runtime.ids import new_id

KEY_LIMIT = 150
#: Seconds for storing the requests; then any center may supervise the run.
START_SECONDS = 30.0


class RunStarts:
    """Starts runs of jobs and changes their state."""

    def __init__(
        self, context: JobContext, feeder: Feeder, agents_wait: Callable[[], float]
    ) -> None:
        """`agents_wait`: seconds that a run which was started before waits for its agents."""
        self._agents_wait = agents_wait
        #: Runs that `start_run` is preparing now. The supervisor of this center has the same
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
        labels: Mapping[str, str] | None = None,
    ) -> str:
        """The id of the run that this key started, now or before; "" is a new key. `job#generator`
        starts a run of that generator only. `arguments` and `labels` are for this run only; it has
        the labels of the job as well.

        Raises UnknownJob, and Conflict for a job that is disabled or deleted. Waits up to `wait`
        seconds for the agents that the job needs, None = does not wait; raises NotEnoughAgents,
        and then the key can be used again.
        """
        job, generator = split_part(job)
        if len(fire_key) > KEY_LIMIT or not fire_key.isprintable():
            raise InvalidInput(
                f"the key is not valid; use at most {KEY_LIMIT} printable characters"
            )
        kept = await self._store.jobs.get(job)
        now = self._clock.now()
        run = new_id(job, now, self._rng)
        fire_key = fire_key_of(generator, fire_key or f"once {run}") if generator else fire_key
        if fire_key and (known := await self._store.job_runs.fired(job, fire_key)):
            return known.run
        _check_startable(kept, generator)
        told = _arguments_of(kept.job, arguments or {})
        marked = _labels_of(kept.job, labels or {})
        settings = kept.job.run_settings(RunSettings())
        try:
            agents = await self._intake.await_agents(run, settings, wait)
        except NotEnoughAgents as error:
            if not fire_key:  # started by a user: the job's list of runs shows the reason
                await self._store.job_runs.begin(_not_started(run, kept, now, error))
            raise
        now = self._clock.now()
        # Leased from the beginning, so that no other center feeds it at the same time.
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
            labels=marked,
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
        """Open the run and store its requests; repeating it changes nothing. `agents` were chosen
        before: a store that stalls meanwhile does not undo the choice. Without them the run waits
        for agents, because a stall also makes live agents look dead."""
        job = (await self._store.jobs.revision(begun.job, begun.revision)).job
        try:
            labels = {**job.labels, **begun.own_labels}
            new = NewRun(job.name, job.run_settings(RunSettings()), labels)
            app, wait = job.app is not None, self._agents_wait()
            run = await self._intake.open_begun(begun.run, new, wait, checked=app, chosen=agents)
            # A user has ended it, or a center died between its end and the end of the job's run.
            if run.state in ENDED_RUN_STATES:
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
        except LostLease:  # another center starts it now
            return
        except SkepError:  # it was never opened
            pass
        outcome = f"could not start: {error.detail}"
        await self._store.job_runs.note(begun.proof, open=False, outcome=outcome)

    async def driven(self, run: Run, spiders: RunSettings) -> Run:
        """Merge the settings of a spider's class, which apply where the job sets nothing."""
        kept = await self._store.job_runs.get(run.id)
        if kept is None:
            return run
        job = (await self._store.jobs.revision(kept.job, kept.revision)).job
        if not await self._store.job_runs.adjust(run.id, job.run_settings(spiders)):
            return run
        return await self._store.runs.get(run.id)

    # -- calls of users and schedules

    async def going(self, jobs: Sequence[str]) -> dict[str, list[str]]:
        """Active runs of these jobs (or `job#generator`), newest first; jobs without one are left
        out. Runs of one generator are not counted for the job, and neither are failed runs, which
        may wait for a user without limit and must not block a due time."""
        return await self._store.job_runs.going(jobs, parts=True, failed=False)

    async def update_run(self, run_id: str, *, keep: bool = False) -> int | None:
        """Let the rest of a job run use the job's current revision, or with `keep` its own.
        Returns that revision; None for a run that no job started. The chosen agents stay."""
        job_run = await self._store.job_runs.get(run_id)
        if job_run is None:
            return None
        kept = await self._store.jobs.get(job_run.job)
        if keep or kept.deleted or kept.revision == job_run.revision:
            return job_run.revision
        before = (await self._store.runs.get(run_id)).settings
        # Only the process of a spider knows the settings of its class.
        under = RunSettings() if kept.job.spider is None else before
        after = msgspec.structs.replace(kept.job.run_settings(under), placement=before.placement)
        await self._store.job_runs.revise(run_id, kept.revision, after)
        return kept.revision

    async def stop_run(self, run: str, reason: str = "") -> None:
        """Cancel it; no effect when it has ended, or no center has opened it yet."""
        try:
            await self._intake.move(run, RunState.CANCELLED, reason)
        except (Conflict, UnknownRun):
            return

    async def pause(self, job: str) -> list[Run]:
        """Pause every active run."""
        return await self._moved(job, (RunState.RUNNING,), RunState.PAUSED)

    async def resume(self, job: str) -> list[Run]:
        """Continue every resting run."""
        return await self._moved(job, RESTING, RunState.RUNNING)

    async def stop(self, job: str) -> list[Run]:
        """Cancel every run that has not ended."""
        return await self._moved(job, (RunState.RUNNING, *RESTING), RunState.CANCELLED)

    async def _moved(self, job: str, wanted: Sequence[RunState], to: RunState) -> list[Run]:
        """Raises UnknownJob, and Conflict when there is nothing to move."""
        await self._store.jobs.get(job)
        reason = "" if to is RunState.RUNNING else f"{to} by a command to job {job}"
        moved: list[Run] = []
        for name in (await self._store.job_runs.going([job])).get(job, []):
            try:
                run = await self._store.runs.get(name)
            except UnknownRun:  # begun, and not open yet; the others are changed all the same
                continue
            if run.state in wanted:
                moved.append(await self._intake.move(name, to, reason))
        if not moved:
            states = " or ".join(wanted)
            raise Conflict(f"job {job} has no run that is {states}; see `skep job show {job}`")
        return moved


#: States in which a run waits for a user.
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
            "arguments: must be a JSON object of names with texts, numbers or booleans"
        ) from None


def read_labels(text: str) -> dict[str, str]:
    """Labels of a call, as JSON; raises InvalidInput."""
    try:
        return checked_labels(msgspec.json.decode(text, type=dict[str, str]) if text else {})
    except msgspec.DecodeError:
        raise InvalidInput("labels: write a JSON object of names with texts") from None
    except ValueError as error:
        raise InvalidInput(f"labels: {error}") from None


def _labels_of(job: Job, labels: Mapping[str, str]) -> str:
    """As the store keeps them; raises InvalidInput when they are too many with the job's."""
    if not labels:
        return ""
    try:
        checked_labels({**job.labels, **labels})
    except ValueError as error:
        raise InvalidInput(f"labels: {error}") from None
    text = msgspec.json.encode(labels).decode()
    if len(text) > ARGUMENTS_LIMIT:
        raise InvalidInput(f"labels of a run have at most {ARGUMENTS_LIMIT} characters as JSON")
    return text


def _arguments_of(job: Job, arguments: Mapping[str, Argument]) -> str:
    """The arguments as the store has them; raises InvalidInput if the job has no code for them."""
    if not arguments:
        return ""
    if job.spider is None and all(part.traits.language is None for part in job.generators):
        raise InvalidInput(
            f"job {job.name} takes no arguments: it has neither a spider nor a generator with code"
        )
    text = msgspec.json.encode(arguments).decode()
    if len(text) > ARGUMENTS_LIMIT:
        raise InvalidInput(f"arguments exceed {ARGUMENTS_LIMIT} characters as JSON; pass fewer")
    return text


def _check_startable(kept: KeptJob, generator: str) -> None:
    name = kept.job.name
    if generator and all(part.name != generator for part in kept.job.generators):
        known = ", ".join(part.name for part in kept.job.generators) or "none"
        raise NotFound(f"job {name} has no generator {generator!r}; it has: {known}")
    if kept.deleted:
        raise Conflict(f"job {name} is deleted; apply it again to restore it")
    if not kept.job.enabled:
        raise Conflict(f"job {name} is disabled; `skep job enable {name}` enables it")
