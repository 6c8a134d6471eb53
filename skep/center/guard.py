"""Two checks before anything else, as plain ASGI: the Host and the Origin of a call.

A center on loopback is still reachable from a browser on the same machine, so a page from
elsewhere must not be able to talk to it under a name of its own (DNS rebinding), nor open
a WebSocket across origins.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_BODY = (
    b'{"type":"urn:skep:problem:forbidden","title":"The token does not allow this",'
    b'"status":403,"detail":"calls from that host or origin are not taken; call the center '
    b'by its own address","code":"forbidden","retryable":false}'
)


def is_loopback(host: str) -> bool:
    """`localhost`, 127.0.0.0/8 or ::1."""
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class Guard:
    """Wraps the application; lets everything else through untouched."""

    def __init__(self, app: App, bound_to: str) -> None:
        self._app = app
        self._loopback_only = is_loopback(bound_to)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan" or self._welcome(scope):
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            head = {"type": "http.response.start", "status": 403}
            await send({**head, "headers": [(b"content-type", b"application/problem+json")]})
            await send({"type": "http.response.body", "body": _BODY})

    def _welcome(self, scope: Scope) -> bool:
        headers = dict(scope["headers"])
        host = headers.get(b"host", b"").decode("latin-1")
        if self._loopback_only and not is_loopback(_name(host)):
            return False
        origin = headers.get(b"origin", b"").decode("latin-1")
        return not origin or urlsplit(origin).netloc == host


def _name(host: str) -> str:
    return host.partition("]")[0] + "]" if host.startswith("[") else host.partition(":")[0]
