"""Why a job does not run, or when it will: its switch, its schedule, its due times. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from skep.model.jobs.fire import Fire, FireState, Planned
from skep.model.jobs.job import KeptJob
from skep.model.jobs.schedule import Overlap, Schedule
from skep.model.wait_reasons import Reason, Why
from skep.why.generators import due_reasons
from skep.why.wording import counted, duration, moment

_OVERLAPS = {
    Overlap.SKIP: "a due time during a run is skipped",
    Overlap.QUEUE: "a due time during a run waits for its end",
    Overlap.REPLACE: "a due time during a run replaces the run",
    Overlap.PARALLEL: "runs can run in parallel",
}
_NO_RUN = frozenset({FireState.SKIPPED, FireState.MISSED, FireState.COALESCED})


class JobWait(msgspec.Struct, frozen=True):
    """A job with all facts that can keep it waiting."""

    kept: KeptJob
    planned: Planned | None
    #: Due times without an outcome, oldest first.
    pending: Sequence[Fire]
    #: The newest due time that has one.
    last: Fire | None
    #: Its runs that have not ended, newest first, and why the newest waits.
    going: Sequence[str]
    run: Why | None = None
    #: Its generators with their own cron line.
    generators: Sequence[Planned] = ()


def why_job(wait: JobWait, now: float) -> Why:
    """Explains a job."""
    job = wait.kept.job
    state = _state(wait)
    reasons = [*_off(wait), *_going(wait), *(wait.run.reasons if wait.run else ())]
    reasons += [*_pending(wait, now), *_scheduled(wait, now), *_last(wait, now)]
    if job.enabled and not wait.kept.deleted:
        reasons += due_reasons(wait.generators, now)
    waiting = wait.run.waiting if wait.run is not None else True
    return Why("job", job.name, state, waiting, reasons)


def _state(wait: JobWait) -> str:
    if wait.kept.deleted:
        return "deleted"
    if wait.run is not None:
        return wait.run.state
    if not wait.kept.job.enabled:
        return "off"
    return "due" if wait.pending else "idle"


def _off(wait: JobWait) -> Iterable[Reason]:
    job = wait.kept.job
    if wait.kept.deleted:
        text = f"job {job.name} was deleted{f' by {wait.kept.author}' if wait.kept.author else ''}"
        again = ("skep job apply FILE",)
        yield Reason("job_deleted", text, "apply the job again", do=again)
    elif not job.enabled:
        text = f"job {job.name} is disabled (`enabled: false`)"
        do = (f"skep job show {job.name}", "skep job apply FILE")
        yield Reason("job_disabled", text, "enable it in its document", do=do)


def _going(wait: JobWait) -> Iterable[Reason]:
    if not wait.going:
        return
    newest, more = wait.going[0], len(wait.going) - 1
    others = f", and {counted(more, 'earlier run')}" if more else ""
    overlap = wait.planned.schedule.overlap if wait.planned else None
    state = f" ({wait.run.state})" if wait.run else ""
    yield Reason(
        "job_running",
        f"its run {newest} has not ended{state}{others}",
        _OVERLAPS[overlap] if overlap else "wait for the end of the run",
        do=(f"skep why run:{newest}",),
        facts={"runs": list(wait.going)[:10], "overlap": overlap or ""},
    )


def _pending(wait: JobWait, now: float) -> Iterable[Reason]:
    for fire in wait.pending[:3]:
        facts = {"due_at": fire.due_at, "key": fire.key, "center": fire.center}
        name = f"due time {fire.key}"
        if fire.state is FireState.QUEUED:
            text = f"{name} waits ({fire.reason}; overlap: queue)"
            yield Reason("fire_queued", text, "wait for the end of that run", facts=facts)
        elif fire.state is FireState.CLAIMED:
            ago = duration(now - fire.claimed_at)
            text = f"center {fire.center} has been opening the run of {name} for {ago}"
            yield Reason("fire_opening", text, "another center takes over in time", facts=facts)
        else:
            text = f"{name} is due, and a center is about to process it"
            yield Reason("fire_due", text, "none; it is processed within seconds", facts=facts)


def _scheduled(wait: JobWait, now: float) -> Iterable[Reason]:
    job = wait.kept.job
    if wait.kept.deleted or not job.enabled:
        return
    run_now = (f"skep job run {job.name}",)
    if wait.planned is None:
        text = f"job {job.name} has no schedule: it runs when you start it"
        if not wait.going and not wait.generators:
            yield Reason("no_schedule", text, "start it", do=run_now)
        return
    schedule, next_at = wait.planned.schedule, wait.planned.next_at
    facts = {"zone": schedule.zone, "overlap": str(schedule.overlap), "when": _when(schedule)}
    if schedule.after:
        text = f"it runs after a successful run of {' or '.join(schedule.after)}"
        after = tuple(f"skep why job:{name}" for name in schedule.after)
        yield Reason("follows", text, "a successful run of one of them", do=(*after, *run_now))
    if next_at is not None:
        text = f"scheduled for {moment(next_at, now)} ({_when(schedule)})"
        frees = f"none; it starts in {duration(next_at - now)}; {_OVERLAPS[schedule.overlap]}"
        yield Reason("scheduled", text, frees, next_at, run_now, facts)
    elif not schedule.after:
        text = f"its schedule ({_when(schedule)}) has no due time left"
        yield Reason("never_due", text, "change the schedule", do=run_now, facts=facts)


def _when(schedule: Schedule) -> str:
    if schedule.cron:
        return f"cron {schedule.cron}, {schedule.zone}"
    return f"every {schedule.every} s" if schedule.every else "after others"


def _last(wait: JobWait, now: float) -> Iterable[Reason]:
    fire = wait.last
    if fire is None or fire.state not in _NO_RUN:
        return
    yield Reason(
        f"fire_{fire.state}",
        f"its last due time, {moment(fire.due_at, now)}, was {fire.state}: {fire.reason}",
        do=(f"skep schedule fires {fire.job}",),
        facts={"due_at": fire.due_at, "key": fire.key, "reason": fire.reason},
    )
