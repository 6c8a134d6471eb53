"""Failure groups as rows: dead requests of one host with one kind of failure. Pure data."""

from __future__ import annotations

from typing import Literal

import msgspec

GroupState = Literal["open", "resolved", "ignored"]
#: The host of the row that has the sum of groups which were dropped beyond the limit.
OTHER_HOSTS = "*"
#: Hours of which a group keeps its counts.
HOURS = 72
#: Days of which it keeps them.
DAYS = 90


class GroupHistory(msgspec.Struct):
    """Deaths by hour and by day: start of the hour or day -> requests."""

    #: The last hours with deaths.
    hours: dict[int, int] = msgspec.field(default_factory=dict)
    #: The last days with deaths.
    days: dict[int, int] = msgspec.field(default_factory=dict)


class KeptGroup(msgspec.Struct, frozen=True):
    """A failure group with its state."""

    #: Fingerprint and host.
    group: str
    host: str
    failure: str
    status: int
    text: str
    #: Requests that died in all, and those that are dead now.
    died: int
    dead: int
    first_at: float
    last_at: float
    state: GroupState = "open"
    note: str = ""
    changed_at: float = 0.0
    #: The user who changed the state; empty = the center.
    changed_by: str = ""
    #: How often it returned after it was resolved.
    reopened: int = 0


class GroupQuery(msgspec.Struct, frozen=True):
    """Selects groups; filters are combined with AND."""

    state: str = ""
    host: str = ""
    failure: str = ""
    limit: int = 50
    #: (last_at, group) of the last one read.
    before: tuple[float, str] | None = None
