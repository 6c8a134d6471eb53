"""Times: a relative one to read, the exact one on hover. Pure.

The page shows UTC; a module of the portal adds the local time and keeps relative times current.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from skep.portal.show.numbers import duration


@dataclass(frozen=True, slots=True)
class Moment:
    """A time, and where it is from now. `ago`: it is in the past."""

    at: float
    iso: str
    exact: str
    #: Distance as text, such as `5 min`.
    distance: str
    ago: bool


def moment(at: float | None, now: float) -> Moment | None:
    """None for a time that is not known (None or 0)."""
    if not at:
        return None
    try:
        when = datetime.fromtimestamp(at, UTC)
    except (OverflowError, ValueError, OSError):
        return None
    iso = when.strftime("%Y-%m-%dT%H:%M:%SZ")
    exact = when.strftime("%Y-%m-%d %H:%M:%S UTC")
    return Moment(at, iso, exact, duration(max(abs(now - at), 0) // 1), at <= now)


def clock_time(at: float) -> str:
    """`12:05:00`, for a list that names the day elsewhere."""
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S")


def seconds_of(iso: str) -> float:
    """Seconds since the epoch of an ISO 8601 text with a zone."""
    return datetime.fromisoformat(iso).timestamp()
