"""A user of the portal for tests: opens pages and sends forms as a browser does.

It follows no redirects, runs no scripts, and keeps the cookies of the center.
"""

from __future__ import annotations

from collections.abc import Mapping
from html.parser import HTMLParser
from http.cookies import SimpleCookie
from io import BytesIO
from urllib.parse import urlencode

from skep.testing.grounds.browsers import PASSWORD, add_user
from skep.testing.grounds.centers import Answer, Caller, RunningCenter

FORM = "application/x-www-form-urlencoded"


class PortalUser:
    """One browser window. `headers` are sent with every call; a test may change them."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self.cookies: dict[str, str] = {}
        self.headers = {
            "Accept": "text/html",
            "Accept-Encoding": "identity",
            "Origin": caller.url,
            "Sec-Fetch-Site": "same-origin",
        }

    async def open(self, path: str, **headers: str) -> Answer:
        """GET a page."""
        sent = {name: value for name, value in self.headers.items() if name != "Origin"}
        return await self._send("GET", path, b"", {**sent, **headers})

    async def submit(self, path: str, **fields: str) -> Answer:
        """POST a form."""
        data = urlencode(fields).encode()
        return await self._send("POST", path, data, {"Content-Type": FORM, **self.headers})

    async def log_in(self, user: str, password: str = PASSWORD) -> Answer:
        return await self.submit("/login", user=user, password=password)

    async def _send(
        self, method: str, path: str, data: bytes, headers: Mapping[str, str]
    ) -> Answer:
        sent = dict(headers)
        if self.cookies:
            sent["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        answer = await self._caller.send(method, path, BytesIO(data) if data else None, sent)
        for name, morsel in SimpleCookie(answer.headers.get("Set-Cookie", "")).items():
            if morsel["max-age"] == "0":
                self.cookies.pop(name, None)
            else:
                self.cookies[name] = morsel.value
        return answer


async def portal_user(center: RunningCenter, name: str, role: str = "admin") -> PortalUser:
    """A new user who has logged in with the form."""
    await add_user(center, name, role)
    found = PortalUser(center.anyone)
    answer = await found.log_in(name)
    assert answer.status == 303, answer.content
    return found


class Markup(HTMLParser):
    """What a browser would read in a page: tags with attributes, and text."""

    def __init__(self, content: bytes) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.text = ""
        self.feed(content.decode())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def handle_data(self, data: str) -> None:
        self.text += data

    def found(self, tag: str) -> list[dict[str, str]]:
        """The attributes of every such tag."""
        return [attributes for name, attributes in self.tags if name == tag]
