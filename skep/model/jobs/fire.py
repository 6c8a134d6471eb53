"""A fire: one due time of one job and what became of it. The ledger of the scheduler.

Pure. `docs/how-to/schedules.md` explains the states.
"""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum

import msgspec

from skep.model.jobs.schedule import Schedule


class FireState(StrEnum):
    """The first three are pending; each of the others is a final outcome."""

    #: Known, and no center has processed it yet.
    DUE = "due"
    #: A center is about to open its run; another takes over if that center is gone.
    CLAIMED = "claimed"
    #: It waits for an earlier run of its job (`overlap: queue`).
    QUEUED = "queued"
    #: Its run was opened in time.
    FIRED = "fired"
    #: Its run was opened after the grace time.
    LATE = "late"
    #: No run, because of the overlap policy or because the job cannot run.
    SKIPPED = "skipped"
    #: No run of its own: a later due time replaces it.
    COALESCED = "coalesced"
    #: No run: no center was up in time, and `catch_up` is `skip`.
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
    #: The center that processed it.
    center: str = ""
    #: Rises with each claim: a center with an older one may no longer write.
    token: int = 0
    claimed_at: float = 0.0
    #: When it got its outcome.
    ended_at: float = 0.0


class Planned(msgspec.Struct, frozen=True):
    """A job's schedule in the store."""

    job: str
    schedule: Schedule
    #: Every due time up to this time is in the ledger.
    decided: int
    #: When a center must check it next; None = never by the clock.
    next_at: float | None
    #: Rises with each change of the schedule.
    version: int = 0


class Step(msgspec.Struct, frozen=True):
    """Decisions about a job's next due times: one transaction of the ledger."""

    #: The plan as it was read; a step that is based on another one has no effect.
    of: Planned
    decided: int
    next_at: float | None
    fires: tuple[Fire, ...]


def key_of_due(due: int) -> str:
    """`2026-11-16T04:50:00Z`."""
    return datetime.fromtimestamp(due, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def key_of_chain(run: str) -> str:
    """The key of a fire that the success of `run` caused."""
    return f"after:{run}"
