"""One row of the center's API: method, path, role, input and output.

The table of these rows is the API: routing, permissions, decoding, the OpenAPI page and
the test that calls every route without a token all read the same rows.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from skep.center.http.authentication import Identity, Role
from skep.center.services import Services
from skep.errors import Fenced, InvalidInput, SkepError
from skep.model.people.audit import AuditRow
from skep.wire.api.route import Route


class Scoping(StrEnum):
    """How the objects of an endpoint are scoped, for callers with a scope."""

    #: Not declared, or about everything: refused.
    GLOBAL = "global"
    #: Only the caller itself, or no object at all.
    OWN = "own"
    #: The agent in the path must be in the scope.
    AGENT = "agent"
    #: The run, job, request, block or operation in the path must be in the scope.
    RUN = "run"
    JOB = "job"
    REQUEST = "request"
    BLOCK = "block"
    OPERATION = "operation"
    #: A list, or an act on many, from which the handler leaves out what is outside.
    FILTERED = "filtered"
    #: The object in the path may be new; the handler checks its labels and its name.
    MADE = "made"


async def _never() -> bool:
    return False


def _nothing() -> None:
    return None


@dataclass(slots=True)
class AuditNotes:
    """What a handler says about the audit row of its call."""

    #: The user who logged in with this call; "" = the caller.
    who: str = ""
    #: Kind and name of an object that the path does not name; "" = that of the path.
    object: str = ""
    #: Makes the row now, for a handler that stores it in the transaction of its change; None
    #: while the call is not audited.
    make: Callable[[], AuditRow] | None = None
    #: The handler has stored the row.
    stored: bool = False

    def take(self) -> AuditRow | None:
        """The row to store with the change; None = the call is not audited."""
        if self.make is None:
            return None
        self.stored = True
        return self.make()


@dataclass(slots=True)
class Call:
    """What an endpoint gets: the call is decoded and authorized."""

    services: Services
    who: Identity
    path: dict[str, str]
    query: Any = None
    body: Any = None
    #: Headers of the call, by lowercase name.
    headers: Mapping[str, str] = field(default_factory=dict)
    #: Whether the caller disconnected; for answers that take long.
    gone: Callable[[], Awaitable[bool]] = _never
    #: The address that it came from, "" = not known.
    origin: str = ""
    #: The scheme of the caller's URL: http or https.
    scheme: str = "http"
    #: The session id in its cookie; "" = none.
    session: str = ""
    #: Headers to add to the answer.
    answer_headers: dict[str, str] = field(default_factory=dict)
    #: The audit row of the call, for handlers that know more about it than the path.
    audit: AuditNotes = field(default_factory=AuditNotes)
    #: Raises when the caller may no longer make this call; for answers that last.
    check: Callable[[], Awaitable[object]] = _never


@dataclass(frozen=True, slots=True)
class Raw:
    """An answer that is not a message: its bytes are sent unchanged."""

    content: bytes
    content_type: str
    headers: dict[str, str] = field(default_factory=dict)
    status: int = 200


@dataclass(frozen=True, slots=True)
class Streamed:
    """An answer too large for memory: `size` bytes, sent as they arrive. Without a size it lasts
    until its parts end or the caller disconnects."""

    parts: AsyncIterator[bytes]
    content_type: str
    size: int | None
    headers: dict[str, str] = field(default_factory=dict)
    #: Called once when nothing more is sent, for whatever reason.
    ended: Callable[[], None] = _nothing


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A route with what only the center knows: who may call it and which handler answers."""

    route: Route[Any]
    role: Role
    handler: Callable[[Call], Awaitable[Any]]
    summary: str
    errors: tuple[type[SkepError], ...] = ()
    tag: str = "center"
    #: More than the summary says, for users.
    notes: str = ""
    #: Schemas of path parameters that accept less than any text.
    parameters: Mapping[str, Any] = field(default_factory=dict)
    #: JSON Schema that the body must follow in addition to its type; the handler checks it.
    body_rules: Mapping[str, Any] = field(default_factory=dict)
    #: Whether the process that drives the run of the path may also call it, with its own token.
    for_driver: bool = False
    #: How its objects are scoped; callers with a scope are refused unless it is declared.
    scoped: Scoping = Scoping.GLOBAL
    #: Whether its calls are rows of the audit log; None = if it changes something and is not a
    #: message of an agent's work.
    audited: bool | None = None
    #: Whether the row shows the object before and after. Not for calls at a high rate, nor for
    #: bodies that hold passwords.
    audits_state: bool = True
    #: Maximum bytes of its body; 0 = `center.body_limit`.
    body_limit: int = 0
    #: Types in its answer that are not masked: collected data, not credentials used to get it.
    clear: tuple[type, ...] = ()

    @property
    def is_audited(self) -> bool:
        if self.audited is not None:
            return self.audited
        return self.method != "GET" and self.role is not Role.AGENT

    @property
    def method(self) -> str:
        return self.route.method

    @property
    def path(self) -> str:
        return self.route.path

    @property
    def takes(self) -> Any:
        return self.route.takes

    @property
    def gives(self) -> Any:
        return self.route.gives

    @property
    def asks(self) -> type | None:
        return self.route.asks

    @property
    def status(self) -> int:
        return self.route.status

    @property
    def media(self) -> str:
        return self.route.media

    @property
    def others(self) -> dict[int, Any]:
        """Types of answers that are neither the normal one nor a problem, by status."""
        return dict.fromkeys(self.route.also, self.route.gives)


def for_agents(
    operation: str,
    path: str,
    handler: Callable[[Call], Awaitable[Any]],
    summary: str,
    takes: Any,
    gives: Any,
    *errors: type[SkepError],
    example: Any,
    audited: bool | None = None,
) -> Endpoint:
    """A row below /node: an agent posts a message and gets one."""
    return Endpoint(
        Route(operation, "POST", f"/node/{path}", gives, takes, example=example),
        Role.AGENT,
        handler,
        summary,
        errors=(InvalidInput, Fenced, *errors),
        tag="agents",
        notes="Accepts msgpack, plain or zstd, or JSON, where bytes are base64.",
        audited=audited,
    )
