"""Checks the Host and the Origin of every call before anything else, as plain ASGI.

A center on loopback is still reachable from a browser on the same machine, so a page of
another site must never be able to call it under its own name (DNS rebinding), nor open a
WebSocket across origins.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, MutableMapping
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

import msgspec

from skep.errors import Forbidden
from skep.wire.problem import PROBLEM, problem_of

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_REFUSAL = Forbidden(
    "calls with this Host or Origin are refused; call the center by its own address"
)
_BODY = msgspec.json.encode(problem_of(_REFUSAL))


_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^:\[\]]+)(?::[0-9]{1,5})?")


def is_loopback(host: str) -> bool:
    """`localhost`, 127.0.0.0/8 or ::1."""
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class OriginCheck:
    """Wraps the application; passes all accepted calls on unchanged."""

    def __init__(self, app: App, bound_to: str, public: str = "") -> None:
        self._app = app
        self._loopback_only = is_loopback(bound_to)
        #: The public name of the proxy, which passes it on as Host.
        self._public = public

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or self._is_allowed(scope):
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            head = {"type": "http.response.start", "status": 403}
            await send({**head, "headers": [(b"content-type", PROBLEM.encode())]})
            await send({"type": "http.response.body", "body": _BODY})

    def _is_allowed(self, scope: Scope) -> bool:
        hosts, origins = _values(scope, b"host"), _values(scope, b"origin")
        if len(hosts) != 1 or len(origins) > 1:
            return False
        host = hosts[0].lower()
        known = is_loopback(_name(host)) or (self._public and host == self._public)
        if self._loopback_only and not known:
            return False
        return not origins or _place(origins[0]) == host


def _values(scope: Scope, wanted: bytes) -> list[str]:
    return [value.decode("latin-1") for name, value in scope["headers"] if name == wanted]


def _place(origin: str) -> str:
    """Host and port of an origin, "" for `null` and for values that are not an origin."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def _name(host: str) -> str:
    """The host without its port; "" when something else follows the host."""
    found = _HOST.fullmatch(host)
    return found[1] if found else ""
