"""A fire: one due time of one job and what became of it. The ledger of the scheduler.

Pure. `docs/how-to/schedules.md` tells people what the states mean.
"""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum

import msgspec

from skep.model.jobs.schedule import Schedule


class FireState(StrEnum):
    """The first three are on their way; each of the others is an outcome, and the last word."""

    #: Known, and no center has looked at it yet.
    DUE = "due"
    #: A center is about to open its run; another takes over when that one is gone.
    CLAIMED = "claimed"
    #: It waits for an earlier run of its job (`overlap: queue`).
    QUEUED = "queued"
    #: Its run was opened in time.
    FIRED = "fired"
    #: Its run was opened after the time of grace.
    LATE = "late"
    #: No run, because of the overlap policy or because the job cannot run.
    SKIPPED = "skipped"
    #: No run of its own: a later due time stands for it.
    COALESCED = "coalesced"
    #: No run: nobody was there in time, and `catch_up` is `skip`.
    MISSED = "missed"


ON_THEIR_WAY = (FireState.DUE, FireState.CLAIMED, FireState.QUEUED)


class Fire(msgspec.Struct, frozen=True):
    """A row of the ledger, unique by (job, key) over all centers."""

    job: str
    key: str
    due_at: int
    state: FireState
    reason: str = ""
    #: The run that it opened.
    run: str = ""
    #: The center that saw to it.
    center: str = ""
    #: Raised with each claim: who holds an older one may not write any more.
    token: int = 0
    claimed_at: float = 0.0
    #: When it got its outcome.
    ended_at: float = 0.0


class Planned(msgspec.Struct, frozen=True):
    """A job's schedule as the store keeps it."""

    job: str
    schedule: Schedule
    #: Every due time up to here is in the ledger.
    decided: int
    #: When a center must look at it next; None = never by the clock.
    next_at: float | None
    #: Raised with each change of the schedule.
    version: int = 0


class Step(msgspec.Struct, frozen=True):
    """A job's next due times, decided: one transaction of the ledger."""

    #: As it was read; a step from anything else is void.
    of: Planned
    decided: int
    next_at: float | None
    fires: tuple[Fire, ...]


def key_of_due(due: int) -> str:
    """`2026-11-16T04:50:00Z`."""
    return datetime.fromtimestamp(due, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def key_of_chain(run: str) -> str:
    """For a fire because `run` succeeded."""
    return f"after:{run}"
