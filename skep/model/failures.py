"""Failures as people ask for them: filters, groups and what was done. Pure data.

Centers and the command line use it; what is not said in a filter does not matter.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from skep.model.failure_fingerprint import GROUP
from skep.model.message_bounds import exact

Moment = Annotated[float, Meta(ge=0, le=1e15)]
_ANY = ["string", "number"]
Word = Annotated[str, Meta(max_length=200)]
#: What can be done to dead requests, many at once.
Act = Literal["retry", "cancel", "forget"]


class FailureFilter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which dead requests; what is not said does not matter. All that is said must fit."""

    #: Name of the run.
    run: Word = ""
    #: Name of the job.
    job: Word = ""
    #: Host of the request.
    host: Annotated[str, Meta(max_length=255)] = ""
    #: Failure class: network, timeout, status, ...
    failure: Word = ""
    #: HTTP status of the last attempt.
    status: Annotated[int, Meta(ge=0, le=65_535)] | None = None
    #: Anywhere in the detail of the last attempt, in small or capital letters.
    text: Word = ""
    #: Died at or after this moment, in seconds since the epoch.
    since: Moment | None = None
    #: Died before this moment.
    until: Moment | None = None
    #: A group as the list names it, or its part before the `@`, for every host.
    group: Annotated[
        str, Meta(max_length=300, extra_json_schema=exact(pattern=f"^({GROUP})?$"))
    ] = ""


class FailureGroup(msgspec.Struct, frozen=True):
    """Dead requests of one host that failed alike."""

    #: Fault and host: the name of the group.
    group: str
    host: str
    failure: str
    status: int
    #: What the details have in common.
    text: str
    requests: int
    first_at: float
    last_at: float


class DeadRequest(msgspec.Struct, frozen=True):
    """A dead request with its last attempt."""

    id: int
    run: str
    uri: str
    group: str
    failures: int
    died_at: float
    failure: str
    status: int
    detail: str
    agent: str


class RequestFilter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which requests, whatever became of them."""

    #: Name of the run.
    run: Word = ""
    #: Name of the job.
    job: Word = ""
    #: Host of the request.
    host: Annotated[str, Meta(max_length=255)] = ""
    #: State of the request; empty = any.
    state: Literal["", "waiting", "queued", "delayed", "done", "dead", "cancelled", "expired"] = ""
    #: Anywhere in the URI, in small or capital letters.
    text: Word = ""
    #: Accepted at or after this moment.
    since: Moment | None = None
    #: Accepted before this moment.
    until: Moment | None = None


def needs_filter(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """JSON Schema of an act: some field of its filter has a value, or it says `all`."""
    given = [
        {"required": [name], "properties": {name: {"type": _ANY, "minLength": 1}}}
        for name in kind.__struct_fields__
    ]
    every = {"required": ["all"], "properties": {"all": {"const": True}}}
    return {"anyOf": [every, {"properties": {"filter": {"anyOf": given}}}]}


class Acted(msgspec.Struct, frozen=True):
    """What became of one batch."""

    #: Requests that were changed.
    done: int
    #: Requests that were left as they are, because their run does not allow it.
    left: int = 0
    #: Runs that rest: what waits in them is handed out when they are continued.
    resting: tuple[str, ...] = ()
