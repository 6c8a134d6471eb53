"""The cookie of a session: its name, reading and writing, and the check of changing calls.

Run by centers only. A browser sends the cookie by itself, so a changing call with it must prove
that it comes from a page of this origin. Programs send a token instead.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from starlette.requests import Request

from skep.access.sessions import PREFIX
from skep.errors import Forbidden

_NAME = "skep_session"
_VALUE = re.compile(rf"{PREFIX}_[0-9a-v]{{20,80}}")
_SAFE_METHODS = frozenset({"GET", "HEAD"})
#: A longer header holds no cookie of ours.
_LONGEST = 16 * 1024


class SessionCookie:
    """The cookie of a center at one public URL."""

    def __init__(self, public_url: str, root: str) -> None:
        self._https = public_url.startswith("https://")
        self._path = root or "/"

    def secure(self, scheme: str) -> bool:
        """Whether the browser talks TLS: the public URL or a trusted proxy says so."""
        return self._https or scheme == "https"

    def name(self, *, secure: bool) -> str:
        """With a prefix that keeps other hosts, and plain HTTP, from setting the cookie."""
        if not secure:
            return _NAME
        return f"__Host-{_NAME}" if self._path == "/" else f"__Secure-{_NAME}"

    def read(self, request: Request) -> str:
        """The session id that a call carries; "" when it carries none, or several."""
        header = request.headers.get("cookie", "")
        name = self.name(secure=self.secure(request.url.scheme))
        if name not in header or len(header) > _LONGEST:
            return ""
        pairs = (part.strip().partition("=") for part in header.split(";"))
        found = [value for known, _, value in pairs if known == name]
        return found[0] if len(found) == 1 and _VALUE.fullmatch(found[0]) else ""

    def written(self, secret: str, seconds: int, scheme: str) -> str:
        """A Set-Cookie header; an empty secret deletes the cookie."""
        secure = self.secure(scheme)
        flags = "; Secure" if secure else ""
        return (
            f"{self.name(secure=secure)}={secret}; Path={self._path}; Max-Age={seconds}; HttpOnly;"
            f" SameSite=Lax{flags}"
        )


def check_same_origin(request: Request) -> None:
    """Raises Forbidden for a changing call with a cookie that a page of another origin may have
    sent. That an Origin header names this host was checked before (`origin_check.py`)."""
    if request.method in _SAFE_METHODS:
        return
    site = request.headers.get("sec-fetch-site", "")
    if site == "same-origin" or (not site and request.headers.get("origin")):
        return
    raise Forbidden(
        "a changing call with a session cookie must come from a page of this center: the headers"
        " Origin and Sec-Fetch-Site do not say so; programs send a token instead"
    )


def check_not_foreign(headers: Mapping[str, str]) -> None:
    """Raises Forbidden for a login that a page of another site sends."""
    if headers.get("sec-fetch-site", "same-origin") not in {"same-origin", "none"}:
        raise Forbidden("a page of another site cannot log in here")
