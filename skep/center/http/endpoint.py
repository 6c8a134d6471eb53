"""One row of the center's API: method, path, role, input and output.

The table of these rows is the API: routing, permissions, decoding, the OpenAPI page and
the test that calls every route without a token all read the same rows.
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


@dataclass(frozen=True, slots=True)
class Raw:
    """An answer that is not a message: its bytes are sent unchanged."""

    content: bytes
    content_type: str
    headers: dict[str, str] = field(default_factory=dict)
    status: int = 200


@dataclass(frozen=True, slots=True)
class Streamed:
    """An answer too large for memory: `size` bytes, sent as they arrive."""

    parts: AsyncIterator[bytes]
    content_type: str
    size: int
    headers: dict[str, str] = field(default_factory=dict)


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
    #: Types in its answer that are not masked: collected data, not credentials used to get it.
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
) -> Endpoint:
    """A row below /node: an agent posts a message and gets one."""
    return Endpoint(
        Route(operation, "POST", f"/node/{path}", gives, takes),
        Role.AGENT,
        handler,
        summary,
        errors=(InvalidInput, Fenced, *errors),
        tag="agents",
        notes="Accepts msgpack, plain or zstd, or JSON, where bytes are base64.",
    )
