"""The contract that the client classes of the resources need: an object that calls a route.

`wire/client/api.py` implements it over a transport. A resource class has one method for each
of its routes, and nothing else.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from skep.wire.api.route import Route

G = TypeVar("G")


@dataclass(frozen=True, slots=True)
class Download:
    """An answer that is read piece by piece, while its context is open."""

    content_type: str
    #: By lower-case name.
    headers: Mapping[str, str]
    pieces: AsyncIterator[bytes]

    async def read(self) -> bytes:
        """The whole answer, for answers that fit into memory."""
        return b"".join([piece async for piece in self.pieces])


class Caller(Protocol):
    """Calls routes. `names` are the values of the path parameters, in their order. Every call
    raises the center's error as its class, and CenterUnreachable when no center answers."""

    async def call(
        self,
        route: Route[G],
        *names: object,
        asks: Any = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        starts_run: bool = False,
    ) -> G:
        """The decoded answer. `starts_run`: the center may wait for agents before it answers."""

    async def content(self, route: Route[Any], *names: object, asks: Any = None) -> bytes:
        """An answer that is not a message, as received."""

    def stream(
        self,
        route: Route[Any],
        *names: object,
        asks: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> AbstractAsyncContextManager[Download]:
        """The same, piece by piece."""


class Resource:
    """One resource of the API: a method for each of its routes."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
