"""Direct dispatch for paths without a parameter, as plain ASGI: no routing, no middleware.

Agents call such paths (heartbeats, leases, reports) hundreds of times a second. An endpoint
answers its own errors, so these calls need no middleware. All other calls go on to the
application.
"""

from __future__ import annotations

from collections.abc import Mapping

from starlette.requests import Request

from skep.center.http.asgi import Answer
from skep.center.http.origin_check import App, Receive, Scope, Send


class FastPath:
    """Wraps the application. `routes`: endpoints by method and path."""

    def __init__(self, app: App, routes: Mapping[tuple[str, str], Answer]) -> None:
        self._app = app
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            path = scope["path"].removeprefix(scope.get("root_path", ""))
            answer = self._routes.get((scope["method"], path))
            if answer is not None:
                response = await answer(Request(scope, receive, send))
                await response(scope, receive, send)
                return
        await self._app(scope, receive, send)
