"""Decides the outcome of due times: catch-up first, then overlap. Pure; equal in every center.

CLAIMED means that the run is opened now; all other states need no run now.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from skep.model.jobs.fire import FireState, key_of_due
from skep.model.jobs.schedule import CatchUp, Overlap, Schedule


class Due(NamedTuple):
    """A due time, and the time (with its jitter) at which it fires."""

    at: int
    fires_at: float


class FireDecision(NamedTuple):
    due: int
    state: FireState
    reason: str = ""


class Busy(NamedTuple):
    """The active work of a job."""

    #: What prevents another run: an active run, or a fire that is being opened.
    #: "" = nothing.
    by: str = ""
    #: Fires in its queue.
    queued: int = 0


def decide(
    schedule: Schedule, dues: Sequence[Due], now: float, busy: Busy, *, more: bool = False
) -> list[FireDecision]:
    """One decision for each due time, in their order; `more`: others are due after these."""
    return overlapped(schedule, caught_up(schedule, dues, now, more=more), busy)


def caught_up(
    schedule: Schedule, dues: Sequence[Due], now: float, *, more: bool
) -> list[FireDecision]:
    """The due times that still need a run, by age only."""
    return [
        _by_age(schedule, due, now, dues[number + 1 : number + 2], more=more)
        for number, due in enumerate(dues)
    ]


def _by_age(
    schedule: Schedule, due: Due, now: float, following: Sequence[Due], *, more: bool
) -> FireDecision:
    if now - due.fires_at <= schedule.grace or schedule.catch_up == CatchUp.ALL:
        return FireDecision(due.at, FireState.CLAIMED)
    seen = f"first seen {now - due.fires_at:.0f} s after its time"
    if schedule.catch_up == CatchUp.SKIP:
        return FireDecision(due.at, FireState.MISSED, f"{seen}, and catch_up is skip")
    if not following and not more:
        return FireDecision(due.at, FireState.CLAIMED)
    by = key_of_due(following[0].at) if following else "a later one"
    return FireDecision(due.at, FireState.COALESCED, f"{seen}; {by} replaces it")


def overlapped(
    schedule: Schedule, verdicts: Sequence[FireDecision], busy: Busy
) -> list[FireDecision]:
    """The fires that need a run and may have it now."""
    if schedule.overlap == Overlap.PARALLEL:
        return list(verdicts)
    if schedule.overlap == Overlap.REPLACE:
        return _only_the_last(verdicts)
    decided: list[FireDecision] = []
    for verdict in verdicts:
        if verdict.state == FireState.CLAIMED and busy.by:
            verdict, busy = _in_its_way(schedule, verdict, busy)  # noqa: PLW2901
        elif verdict.state == FireState.CLAIMED:
            busy = busy._replace(by=f"the fire of {key_of_due(verdict.due)}")
        decided.append(verdict)
    return decided


def _in_its_way(schedule: Schedule, verdict: FireDecision, busy: Busy) -> tuple[FireDecision, Busy]:
    why = f"{busy.by} was still active"
    if schedule.overlap == Overlap.SKIP:
        return FireDecision(verdict.due, FireState.SKIPPED, why), busy
    if busy.queued >= schedule.queue_limit:
        full = f"{why} and {busy.queued} were already queued"
        return FireDecision(verdict.due, FireState.SKIPPED, full), busy
    return FireDecision(verdict.due, FireState.QUEUED, why), busy._replace(queued=busy.queued + 1)


def _only_the_last(verdicts: Sequence[FireDecision]) -> list[FireDecision]:
    wanted = [verdict.due for verdict in verdicts if verdict.state == FireState.CLAIMED]
    return [
        FireDecision(
            verdict.due, FireState.COALESCED, f"{key_of_due(wanted[-1])} replaced it immediately"
        )
        if verdict.due in wanted[:-1]
        else verdict
        for verdict in verdicts
    ]
