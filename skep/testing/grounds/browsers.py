"""A browser for tests: it keeps the cookies of a center and sends what browsers send.

It does no more than that: whether a cookie may be sent at all is the test's decision.
"""

from __future__ import annotations

from collections.abc import Mapping
from http.cookies import SimpleCookie
from io import BytesIO
from typing import Any

import msgspec

from skep.testing.grounds.centers import Answer, Caller, RunningCenter
from skep.wire import codec

PASSWORD = "correct horse battery"  # noqa: S105 - of users in tests


class Browser:
    """Pages of one origin that call one center."""

    def __init__(self, caller: Caller, origin: str = "") -> None:
        self._caller = caller
        self.cookies: dict[str, str] = {}
        #: Sent with every call; a test may take them away.
        self.headers = {"Origin": origin or caller.url, "Sec-Fetch-Site": "same-origin"}
        #: The last Set-Cookie header.
        self.set_cookie = ""

    async def call(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        data = None if body is None else BytesIO(msgspec.json.encode(body))
        sent = {"Content-Type": codec.JSON, **self.headers, **(headers or {})}
        if self.cookies:
            sent["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        answer = await self._caller.send(method, path, data, sent)
        self._keep(answer.headers.get("Set-Cookie", ""))
        return answer

    async def log_in(self, user: str, password: str = PASSWORD) -> Answer:
        return await self.call("POST", "/api/v1/login", {"user": user, "password": password})

    async def follow(self, link: str) -> Answer:
        """Log in by the secret part of a login link."""
        return await self.call("POST", "/api/v1/login", {"kind": "link", "link": link})

    def _keep(self, header: str) -> None:
        if not header:
            return
        self.set_cookie = header
        for name, morsel in SimpleCookie(header).items():
            if morsel["max-age"] == "0":
                self.cookies.pop(name, None)
            else:
                self.cookies[name] = morsel.value


def browser(center: RunningCenter) -> Browser:
    return Browser(center.anyone)


async def add_user(center: RunningCenter, name: str, role: str = "viewer", **more: Any) -> None:
    """A user with the password of all tests."""
    body = {"name": name, "role": role, "password": PASSWORD, **more}
    answer = await center.admin.post("/api/v1/users", body)
    assert answer.status == 201, answer.content


async def logged_in(center: RunningCenter, name: str, role: str = "viewer", **more: Any) -> Browser:
    """A new user in a browser of their own."""
    await add_user(center, name, role, **more)
    found = browser(center)
    assert (await found.log_in(name)).status == 200
    return found
