"""The API as the user who asks: the cookie or the token of the page's own call.

Every page calls the application that serves it, in this process. It never calls another center
and never adds a right that the caller does not have.
"""

from __future__ import annotations

from collections.abc import Mapping

from starlette.requests import Request

from skep.wire.client.api import CenterApi
from skep.wire.client.in_process import InProcessTransport

_BEARER = "bearer "
_AGENT_LIMIT = 500


def api_of(request: Request, heard: dict[str, str]) -> CenterApi:
    """A client for one call; `heard` has the headers of its last answer."""

    def keep(headers: Mapping[str, str]) -> None:
        heard.clear()
        heard.update(headers)

    transport = InProcessTransport(
        request.app,
        _token(request.headers.get("authorization", "")),
        request.client.host if request.client else "",
        cookie=request.headers.get("cookie", ""),
        scheme=request.url.scheme,
        headers={"user-agent": request.headers.get("user-agent", "")[:_AGENT_LIMIT]},
        heard=keep,
    )
    return CenterApi(transport)


def _token(header: str) -> str:
    known = header.lower().startswith(_BEARER)
    return header[len(_BEARER) :].strip() if known else ""
