"""Failed requests as the API shows them: filters, groups and results of actions. Pure data.

Used by centers and the command line. Filters are combined with AND.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from skep.model.failures.failure_fingerprint import GROUP
from skep.model.message_bounds import exact

Moment = Annotated[float, Meta(ge=0, le=1e15)]
_ANY = ["string", "number"]
Word = Annotated[str, Meta(max_length=200)]
#: Actions on many dead requests at once.
Act = Literal["retry", "cancel", "forget"]


class FailureFilter(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Selects dead requests. Filters are combined with AND; an unset filter matches everything."""

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
    #: Text in the detail of the last attempt; case does not matter.
    text: Word = ""
    #: Died at or after this time, in seconds since the epoch.
    since: Moment | None = None
    #: Died before this time.
    until: Moment | None = None
    #: A group name from the list, or its part before the `@`, for every host.
    group: Annotated[
        str, Meta(max_length=300, extra_json_schema=exact(pattern=f"^({GROUP})?$"))
    ] = ""


class FailureGroup(msgspec.Struct, frozen=True):
    """Dead requests of one host with the same kind of failure."""

    #: Name of the group: fingerprint and host.
    group: str
    host: str
    failure: str
    status: int
    #: The common part of the details.
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
    """Selects requests in any state."""

    #: Name of the run.
    run: Word = ""
    #: Name of the job.
    job: Word = ""
    #: Host of the request.
    host: Annotated[str, Meta(max_length=255)] = ""
    #: State of the request; empty = any.
    state: Literal["", "waiting", "queued", "delayed", "done", "dead", "cancelled", "expired"] = ""
    #: Text in the URI; case does not matter.
    text: Word = ""
    #: Accepted at or after this time.
    since: Moment | None = None
    #: Accepted before this time.
    until: Moment | None = None


def needs_filter(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """JSON Schema of an action: at least one filter has a value, or `all` is true."""
    given = [
        {"required": [name], "properties": {name: {"type": _ANY, "minLength": 1}}}
        for name in kind.__struct_fields__
    ]
    every = {"required": ["all"], "properties": {"all": {"const": True}}}
    return {"anyOf": [every, {"properties": {"filter": {"anyOf": given}}}]}


class Acted(msgspec.Struct, frozen=True):
    """The result of one batch."""

    #: Requests that were changed.
    done: int
    #: Requests left unchanged, because their run does not allow the action.
    left: int = 0
    #: Runs that are not running: their waiting requests are dispatched when they continue.
    resting: tuple[str, ...] = ()
