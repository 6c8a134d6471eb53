"""One row of the center's API: method, path, role, what goes in, what comes out.

The table of these rows is the API: routing, permission, decoding, the OpenAPI page and
the test that tries every route without a token all read the same rows.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from skep.center.http.authentication import Identity, Role
from skep.center.services import Services
from skep.errors import Fenced, InvalidInput, SkepError
from skep.wire.api.route import Route


async def _never() -> bool:
    return False


@dataclass(slots=True)
class Call:
    """What an endpoint gets: everything is decoded and allowed by now."""

    services: Services
    who: Identity
    path: dict[str, str]
    query: Any = None
    body: Any = None
    #: Headers of the call, by their names in small letters.
    headers: Mapping[str, str] = field(default_factory=dict)
    #: Whether the caller hung up; for answers that take their time.
    gone: Callable[[], Awaitable[bool]] = _never
    #: The address that it came from, "" = not known.
    origin: str = ""


@dataclass(frozen=True, slots=True)
class Raw:
    """An answer that is not a message: its bytes go out as they are."""

    content: bytes
    content_type: str
    headers: dict[str, str] = field(default_factory=dict)
    status: int = 200


@dataclass(frozen=True, slots=True)
class Streamed:
    """An answer too large for memory: `size` bytes, as they come."""

    parts: AsyncIterator[bytes]
    content_type: str
    size: int
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A route, with what this side knows about it: who may call it and what answers."""

    route: Route[Any]
    role: Role
    handler: Callable[[Call], Awaitable[Any]]
    summary: str
    errors: tuple[type[SkepError], ...] = ()
    tag: str = "center"
    #: What people should know beyond the summary.
    notes: str = ""
    #: Schemas of path parameters that are more than any text.
    parameters: Mapping[str, Any] = field(default_factory=dict)
    #: JSON Schema that the body keeps to beside its type; checked by the handler.
    body_rules: Mapping[str, Any] = field(default_factory=dict)
    #: The process that drives the run of the path may call it too, with its own token.
    for_driver: bool = False
    #: Types of its answer that nothing is masked in: collected data, not what it was got with.
    clear: tuple[type, ...] = ()

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
        """Types of answers that are neither the good one nor a problem, by status."""
        return dict.fromkeys(self.route.also, self.route.gives)


def for_agents(
    operation: str,
    path: str,
    handler: Callable[[Call], Awaitable[Any]],
    summary: str,
    takes: Any,
    gives: Any,
    *errors: type[SkepError],
) -> Endpoint:
    """A row below /node: agents post a message and get one."""
    return Endpoint(
        Route(operation, "POST", f"/node/{path}", gives, takes),
        Role.AGENT,
        handler,
        summary,
        errors=(InvalidInput, Fenced, *errors),
        tag="agents",
        notes="Takes msgpack, plain or zstd, or JSON, where bytes are base64.",
    )
