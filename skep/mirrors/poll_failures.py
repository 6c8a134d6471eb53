"""When a repository is polled again after failures. Pure.

A failing repository is retried with growing pauses, from a share of the host's budget, so that many
broken ones never slow down the others. A repository that is gone, refuses the credentials or is too
large reaches an end state; it is probed rarely and never forgotten.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from skep.mirrors.activity import DAY
from skep.model.poll_failure import PollFailureKind

EndState = Literal["not_found", "auth_failed", "too_large"]

#: Pause after the first failure, and the longest one, in seconds.
FIRST_PAUSE, LONGEST_PAUSE = 300.0, DAY
#: A repository counts as gone after this many answers over this many seconds.
GONE_ANSWERS, GONE_SECONDS = 3, 3 * DAY
#: Seconds between two polls in an end state.
PROBES: dict[EndState, float] = {
    "not_found": 30 * DAY,
    "auth_failed": 7 * DAY,
    "too_large": 30 * DAY,
}


class Failure(msgspec.Struct, frozen=True, array_like=True):
    """Failures in a row, all of one kind."""

    kind: PollFailureKind
    #: Time of the first, in seconds since the epoch.
    since: float
    count: int = 1
    #: The server asked to wait until then.
    not_before: float = 0.0


def after_failure(
    before: Failure | None, kind: PollFailureKind, now: float, *, not_before: float = 0.0
) -> Failure:
    """The failures in a row, with the newest one."""
    if before is None or before.kind != kind:
        return Failure(kind, now, not_before=not_before)
    return Failure(kind, before.since, before.count + 1, not_before)


def end_state(failure: Failure, now: float) -> EndState | None:
    """The state that only a change at the other side, or of the credentials, ends."""
    if failure.kind == "refused":
        return "auth_failed"
    if failure.kind == "too_large":
        return "too_large"
    gone = failure.count >= GONE_ANSWERS and now - failure.since >= GONE_SECONDS
    return "not_found" if failure.kind == "not_found" and gone else None


def retry_delay(failure: Failure, now: float, usual: float, spacing: float) -> float:
    """Seconds until the next try. `usual`: the delay without failures; `spacing`: the least delay
    at which all failing repositories of the host stay in their share of its budget."""
    asked = failure.not_before - now
    if ended := end_state(failure, now):
        return max(PROBES[ended], spacing, asked)
    pause = min(FIRST_PAUSE * 2.0 ** min(failure.count - 1, 16), LONGEST_PAUSE)
    return max(min(usual, LONGEST_PAUSE), pause, spacing, asked)
