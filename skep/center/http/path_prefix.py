"""The path below which a proxy serves a center (`center.public_url`), as plain ASGI.

A proxy may pass calls on with that path or without it, and programs in the same network may
call the center directly. The application gets every call as one below the path, so that
links, redirects and the API's description lead back through the proxy. It never answers a
call.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from skep.center.http.origin_check import App, Receive, Scope, Send


def root_of(public_url: str) -> str:
    """The path of an address, "" for none."""
    return urlsplit(public_url).path.rstrip("/")


def host_of(public_url: str) -> str:
    """Host, and port if there is one, as in a caller's Host header."""
    return urlsplit(public_url).netloc.lower()


class Prefix:
    """Wraps the application. Routes are matched after `root_path`."""

    def __init__(self, app: App, root: str) -> None:
        self._app = app
        self._root = root

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan" and self._root:
            path: str = scope["path"]
            inside = path == self._root or path.startswith(f"{self._root}/")
            path = path if inside else self._root + path
            scope = {**scope, "root_path": self._root, "path": path}
        await self._app(scope, receive, send)
