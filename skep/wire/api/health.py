"""Health, version, metrics and the API's description: types and routes. No token is needed."""

from __future__ import annotations

import msgspec

from skep.errors import Unavailable
from skep.wire.api.caller import Resource
from skep.wire.api.route import Route

NOT_READY = Unavailable.status


class Alive(msgspec.Struct):
    """The process is alive."""

    status: str = "ok"


class Check(msgspec.Struct):
    """One required component; the detail is for callers with a token."""

    name: str
    ok: bool
    detail: str


class Ready(msgspec.Struct):
    """All required components."""

    status: str
    checks: list[Check]


class Version(msgspec.Struct):
    """Versions of the program and its protocol."""

    version: str
    protocol: int
    oldest_protocol: int
    center: str
    #: The center's clock, in seconds since the epoch.
    now: float = 0.0
    #: Maximum seconds that a call which starts a run waits for agents.
    start_wait: float = 0.0


class Verbose(msgspec.Struct):
    """If `verbose` is in the query, the checks are listed."""

    #: With any value, even an empty one: list the single checks.
    verbose: str | None = None


GET_LIVENESS = Route("get_liveness", "GET", "/livez", Alive)
GET_READINESS = Route("get_readiness", "GET", "/readyz", Ready, asks=Verbose, also=(NOT_READY,))
GET_HEALTH = Route("get_health", "GET", "/healthz", Ready, asks=Verbose, also=(NOT_READY,))
GET_VERSION = Route("get_version", "GET", "/version", Version)
GET_METRICS: Route[bytes] = Route(
    "get_metrics", "GET", "/metrics", media="text/plain", answer_example="skep_accepted_total 2.0\n"
)
GET_OPENAPI: Route[bytes] = Route(
    "get_openapi",
    "GET",
    "/openapi.json",
    answer_example={"openapi": "3.1.0", "info": {"title": "Skep", "version": "1.0"}, "paths": {}},
)
GET_DOCS: Route[bytes] = Route(
    "get_docs",
    "GET",
    "/docs",
    media="text/html",
    answer_example="<!doctype html><html><body></body></html>",
)


class HealthClient(Resource):
    """Calls the routes of this file."""

    async def live(self) -> Alive:
        """Does the process answer?"""
        return await self._caller.call(GET_LIVENESS)

    async def ready(self, asks: Verbose | None = None) -> Ready:
        """Can it work?"""
        return await self._caller.call(GET_READINESS, asks=asks)

    async def health(self, asks: Verbose | None = None) -> Ready:
        """The same as /readyz."""
        return await self._caller.call(GET_HEALTH, asks=asks)

    async def version(self) -> Version:
        """Versions of program and protocol."""
        return await self._caller.call(GET_VERSION)

    async def metrics(self) -> bytes:
        """Figures for Prometheus."""
        return await self._caller.content(GET_METRICS)

    async def openapi(self) -> bytes:
        """This description."""
        return await self._caller.content(GET_OPENAPI)

    async def docs(self) -> bytes:
        """This description as a page."""
        return await self._caller.content(GET_DOCS)
