"""Explains the supervision of a job run: its center, and the process of its spider. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from skep.model.jobs.generator_progress import Generation
from skep.model.jobs.job import JobRun
from skep.model.wait_reasons import Reason
from skep.why.generators import generator_reasons
from skep.why.wording import counted, duration, moment


class SupervisionFacts(msgspec.Struct, frozen=True):
    """A run of a job, and what this center knows about its process."""

    job_run: JobRun
    #: When its crashed spider restarts; None = it does not wait for that, or another center
    #: knows.
    restart_at: float | None = None
    #: Its generators, in the order of its document.
    generations: Sequence[Generation] = ()


def supervision_reasons(care: SupervisionFacts, now: float) -> Iterable[Reason]:
    """Reasons why the run is not supervised, or waits for its supervisor."""
    kept = care.job_run
    if not kept.open:
        return
    yield from generator_reasons(care.generations, kept.job)
    if kept.held_until < now:
        yield _unattended(kept)
        return
    if care.restart_at is not None:
        yield _restarting(kept, care.restart_at, now)
    if not kept.fed:
        text = f"center {kept.holder} is about to submit the requests of job {kept.job}"
        yield Reason("to_be_fed", text, "none; within seconds", facts={"center": kept.holder})


def _unattended(kept: JobRun) -> Reason:
    return Reason(
        "run_unattended",
        f"no center supervises run {kept.run} of job {kept.job}",
        "start a center, or raise jobs.runs_limit; a center then takes the run",
        do=("skep doctor", "skep center --set jobs.runs_limit=N"),
        facts={"job": kept.job, "held_until": kept.held_until},
    )


def _restarting(kept: JobRun, at: float, now: float) -> Reason:
    last = kept.log.strip().rpartition("\n")[2][:300]
    said = f"; last output: {last}" if last else ""
    return Reason(
        "spider_restarting",
        f"its spider crashed and restarts at {moment(at, now)}, after"
        f" {counted(kept.starts, 'start')}{said}",
        f"none; it restarts automatically in {duration(at - now)}",
        at,
        (f"skep job show {kept.job}",),
        {"job": kept.job, "starts": kept.starts, "center": kept.holder, "last_line": last},
    )
