"""Health, version, metrics and the API's own description: the routes without a token.

Run by centers. `livez` answers even when everything else fails; `readyz` says what fails.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from skep import __version__
from skep.center.http.authentication import Role
from skep.center.http.endpoint import Call, Endpoint, Raw
from skep.center.services import Services
from skep.errors import SkepError, Unavailable
from skep.wire.api.health import (
    GET_HEALTH,
    GET_LIVENESS,
    GET_METRICS,
    GET_READINESS,
    GET_VERSION,
    NOT_READY,
    Alive,
    Check,
    Ready,
    Version,
)
from skep.wire.api.route import Route
from skep.wire.messages import OLDEST_PROTOCOL, PROTOCOL


async def livez(_call: Call) -> Alive:
    """Answers as long as the process runs."""
    return Alive()


async def readyz(call: Call) -> Raw:
    """Checks of store, bus, archive, disk and secrets; 503 when one of them fails."""
    checks = [await _check(name, check) for name, check in _checks(call.services)]
    good = all(check.ok for check in checks)
    shown = checks if call.query.verbose is not None or not good else []
    if not await _may_look(call):
        shown = [Check(check.name, check.ok, "") for check in shown]
    body = msgspec.json.encode(Ready("ok" if good else "not ready", shown))
    return Raw(body, "application/json", status=200 if good else NOT_READY)


async def _may_look(call: Call) -> bool:
    """Whether the caller may read paths and addresses: only with a token or a session."""
    token = call.headers.get("authorization", "")
    try:
        await call.services.auth.identify(token, Role.VIEWER, "", call.origin, call.session)
    except Unavailable:
        return call.services.auth.remembers(token)
    except SkepError:
        return False
    return True


def _checks(services: Services) -> list[tuple[str, Callable[[], Awaitable[str]]]]:
    async def store() -> str:
        await services.store.ping()
        return services.store.describe()

    async def bus() -> str:
        await services.bus.ping()
        return services.bus.describe()

    async def archive() -> str:
        segments, size = await services.archive.usage()
        return f"{services.archive.describe()}: {segments} segments, {size} bytes"

    async def disk() -> str:
        services.disk.check()
        return ", ".join(f"{folder}: {free} bytes free" for folder, free in services.disk.figures())

    return [
        ("store", store),
        ("bus", bus),
        ("archive", archive),
        ("disk", disk),
        ("secrets", services.people.secrets.check),
    ]


async def _check(name: str, check: Callable[[], Awaitable[str]]) -> Check:
    try:
        return Check(name, True, await check())
    except SkepError as error:
        return Check(name, False, error.detail)


async def version(call: Call) -> Version:
    """Version of the program and of the protocol."""
    services = call.services
    now = services.clock.now()
    center = services.settings.center
    wait = max(center.allocate_wait, center.alive_after)
    return Version(__version__, PROTOCOL, OLDEST_PROTOCOL, services.name, now, wait)


async def metrics(call: Call) -> Raw:
    """Prometheus text, from memory."""
    services = call.services
    services.metrics.disk_full.set(services.disk.full)
    services.metrics.show_differences(services.repairs.open)
    return Raw(services.metrics.text(), "text/plain; version=0.0.4")


def _public(route: Route[Any], handler: Any, summary: str) -> Endpoint:
    return Endpoint(route, Role.PUBLIC, handler, summary, tag="health")


ENDPOINTS = (
    _public(GET_LIVENESS, livez, "Liveness: the process answers"),
    _public(GET_READINESS, readyz, "Readiness: store, bus, archive and disk work"),
    _public(GET_HEALTH, readyz, "The same as /readyz"),
    _public(GET_VERSION, version, "Versions of program and protocol"),
    _public(GET_METRICS, metrics, "Metrics for Prometheus"),
)
