"""Explains the generators of a run or of a job: running, failed, or waiting for their time.
Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from skep.model.jobs.fire import Planned
from skep.model.jobs.generator_progress import REQUESTS, Generation, GenerationState, split_part
from skep.model.wait_reasons import Reason
from skep.why.wording import counted, duration, moment


def generator_reasons(found: Sequence[Generation], job: str) -> Iterable[Reason]:
    """Of a run: the generators that have not ended."""
    for one in found:
        if one.n == REQUESTS or one.state is GenerationState.DONE:
            continue
        yield _failed(one, job) if one.state is GenerationState.FAILED else _running(one)


def _running(one: Generation) -> Reason:
    again = f", started {counted(one.starts, 'time')}" if one.starts > 1 else ""
    return Reason(
        "generator_running",
        f"generator {one.name} is running and has yielded {counted(one.yielded, 'URI')} so far,"
        f" of which {one.taken:,} were new{again}",
        "none; the run does not end before the generator",
        do=(f"skep generator ls {one.run}",),
        facts=_facts(one),
    )


def _failed(one: Generation, job: str) -> Reason:
    return Reason(
        "generator_failed",
        f"generator {one.name} has failed after {counted(one.yielded, 'URI')}: {one.detail}",
        "continue the run; the generator then restarts",
        do=(f"skep generator ls {one.run}", f"skep job resume {job}"),
        facts=_facts(one),
    )


def _facts(one: Generation) -> dict[str, object]:
    return {
        "generator": one.name,
        "kind": one.kind,
        "yielded": one.yielded,
        "taken": one.taken,
        "starts": one.starts,
        "detail": one.detail,
    }


def due_reasons(planned: Sequence[Planned], now: float) -> Iterable[Reason]:
    """Of a job: generators with their own cron line."""
    for one in planned:
        if one.next_at is None:
            continue
        job, name = split_part(one.job)
        yield Reason(
            "generator_due",
            f"generator {name} runs at {moment(one.next_at, now)}"
            f" (cron {one.schedule.cron}, {one.schedule.zone})",
            f"none; it starts automatically in {duration(one.next_at - now)}",
            one.next_at,
            (f"skep job run {job} --generator {name}",),
            {"generator": name, "cron": one.schedule.cron},
        )
