"""The routes of the portal, for the application of a center. `embed` hands them over.

Nothing is loaded here: pages, templates, texts and assets come with the first call that is not one
of the API, so a center starts as fast as without a portal.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from random import Random
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Route
from starlette.types import Receive, Scope, Send

from skep.runtime.clock import Clock

if TYPE_CHECKING:
    from skep.portal.page import Page
    from skep.portal.serving import Serving

#: Seconds that a browser keeps an asset whose name has its hash.
_YEAR = 365 * 86_400
#: Paths of the API and of agents: an unknown one there is answered as the API does.
_NOT_PAGES = ("/api/", "/node/", "/requestqueue/", "/assets/")
#: In the scope of a call: the route that was found for it.
_FOUND = "skep.portal.route"


def portal_routes(clock: Clock, rng: Random) -> list[BaseRoute]:
    """Every page, the assets, the root, and the page for unknown paths, as one route."""
    return [_Portal(clock, rng)]


class _Portal(BaseRoute):
    """Finds the route of a call among those of the portal."""

    def __init__(self, clock: Clock, rng: Random) -> None:
        self._clock = clock
        self._rng = rng

    @cached_property
    def _routes(self) -> list[BaseRoute]:
        return _made(self._clock, self._rng)

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        partial: tuple[Match, Scope] = (Match.NONE, {})
        if scope["type"] != "http":
            return partial
        root = scope.get("root_path", "")
        if root and scope["path"] == root:  # the prefix of the proxy without a slash
            scope = {**scope, "path": f"{root}/"}
        for route in self._routes:
            match, child = route.matches(scope)
            if match is Match.FULL:
                return match, {**child, _FOUND: route}
            if match is Match.PARTIAL and partial[0] is Match.NONE:
                partial = match, {**child, _FOUND: route}
        return partial

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        route: BaseRoute = scope[_FOUND]
        await route.handle(scope, receive, send)


def _made(clock: Clock, rng: Random) -> list[BaseRoute]:
    from skep.portal.pages.unknown import UNKNOWN
    from skep.portal.registry import pages
    from skep.portal.serving import Serving

    table = pages()
    serving = Serving(table, clock, rng)
    found: list[BaseRoute] = [_Browsers("/", _to_home), Route("/assets/{name}", _asset)]
    paths = sorted(dict.fromkeys(page.path for page in table), key=_fixed_first)
    rows = [_route(path, [page for page in table if page.path == path], serving) for path in paths]
    return [*found, *rows, _Browsers("/{path:path}", serving.answer(UNKNOWN))]


def _fixed_first(path: str) -> list[bool]:
    """`/runs/compare` before `/runs/{run}`, independent of the order in the registry."""
    return ["{" in part for part in path.split("/")]


def _route(path: str, table: Sequence[Page], serving: Serving) -> BaseRoute:
    answers = {page.method: serving.answer(page) for page in table}

    async def answer(request: Request) -> Response:
        return await answers["GET" if request.method == "HEAD" else request.method](request)

    return Route(path, answer, methods=list(answers))


class _Browsers(Route):
    """Matches only what a person opens in a browser; programs get the answer of the API."""

    def __init__(self, path: str, endpoint: Any) -> None:
        super().__init__(path, endpoint, methods=["GET"])

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if scope["method"] not in {"GET", "HEAD"} or not _wants_html(scope):
            return Match.NONE, {}
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        if path.startswith(_NOT_PAGES):
            return Match.NONE, {}
        return super().matches(scope)


def _wants_html(scope: Scope) -> bool:
    accepts = [value for name, value in scope["headers"] if name == b"accept"]
    return any(b"text/html" in value for value in accepts)


async def _to_home(request: Request) -> Response:
    from skep.portal.safe_paths import HOME
    from skep.portal.serving import HEADERS

    root = request.scope.get("root_path", "")
    return Response(None, 302, {**HEADERS, "location": f"{root}{HOME}"})


async def _asset(request: Request) -> Response:
    from skep.portal.assets_table import package_assets
    from skep.portal.serving import HEADERS

    found = package_assets().find(request.path_params["name"])
    if found is None:
        return Response(None, 404, HEADERS)
    asset, current = found
    kept = f"public, max-age={_YEAR}, immutable" if current else "no-cache"
    headers = {**HEADERS, "cache-control": kept}
    headers.pop("vary")
    return Response(asset.content, 200, headers, media_type=asset.content_type)
