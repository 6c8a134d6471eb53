"""The two checks before everything: the Host and the Origin of a call. Pure ASGI."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

import msgspec
import pytest

from skep.center.http.origin_check import OriginCheck, is_loopback
from skep.center.http.path_prefix import Prefix, host_of, root_of
from skep.errors import Forbidden
from skep.wire.problem import Problem

Sent = list[MutableMapping[str, Any]]


async def call(
    headers: list[tuple[str, str]],
    bound: str = "127.0.0.1",
    kind: str = "http",
    public: str = "",
) -> Sent:
    """What goes out; the application behind the guard says `through`."""
    sent: Sent = []

    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "through"})

    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    raw = [(name.encode(), value.encode("latin-1")) for name, value in headers]
    await OriginCheck(app, bound, public)({"type": kind, "headers": raw}, receive, send)
    return sent


WELCOME = ["127.0.0.1:8420", "localhost:8420", "LOCALHOST", "[::1]:8420", "[::1]", "127.1.2.3"]
UNWELCOME = [
    "evil.example",
    "evil.example:8420",
    "127.0.0.1.evil.example",
    "localhost.evil.example",
    "[::1]evil.example",
    "[::1",
    "::1",
    "127.0.0.1:8420:1",
    "127.0.0.1@evil.example",
    "0.0.0.0",
    "10.0.0.1",
    "",
]


@pytest.mark.parametrize("host", WELCOME)
async def test_our_own_names_are_welcome(host: str) -> None:
    for kind in ("http", "websocket"):
        assert await call([("host", host)], kind=kind) == [{"type": "through"}]


@pytest.mark.parametrize("host", UNWELCOME)
async def test_other_names_are_not(host: str) -> None:
    """Fault 52: another name that points at loopback is not ours."""
    start, body = await call([("host", host)])
    assert start["status"] == 403
    problem = msgspec.json.decode(body["body"], type=Problem)
    assert (problem.code, problem.status, problem.title) == (
        Forbidden.code,
        Forbidden.status,
        Forbidden.title,
    )
    assert await call([("host", host)], kind="websocket") == [
        {"type": "websocket.close", "code": 1008}
    ]


@pytest.mark.parametrize(
    ("origin", "welcome"),
    [
        ("http://127.0.0.1:8420", True),
        ("HTTP://127.0.0.1:8420", True),
        ("http://127.0.0.1", False),
        ("http://127.0.0.1:9999", False),
        ("http://localhost:8420", False),
        ("http://evil.example", False),
        ("http://127.0.0.1:8420.evil.example", False),
        ("http://user@127.0.0.1:8420", False),
        ("null", False),
        ("http://[", False),
        ("", False),
        ("127.0.0.1:8420", False),
    ],
)
async def test_the_origin_is_our_own_or_absent(origin: str, welcome: bool) -> None:
    """Fault 52: for HTTP and for WebSocket."""
    headers = [("host", "127.0.0.1:8420"), ("origin", origin)]
    for kind in ("http", "websocket"):
        sent = await call(headers, kind=kind)
        assert (sent == [{"type": "through"}]) is welcome


async def test_two_hosts_or_two_origins_are_no_host() -> None:
    """Fault 52: a reader of the other one would be misled."""
    for headers in (
        [("host", "127.0.0.1"), ("host", "evil.example")],
        [("host", "127.0.0.1"), ("origin", "http://127.0.0.1"), ("origin", "http://evil.example")],
        [],
    ):
        assert (await call(headers))[0]["status"] == 403


async def test_a_center_for_a_network_takes_any_name_but_no_foreign_origin() -> None:
    """Fault 52: it needs auth, and its names are not known here."""
    assert await call([("host", "skep.lan:8420")], "0.0.0.0") == [{"type": "through"}]
    headers = [("host", "skep.lan:8420"), ("origin", "http://evil.example")]
    assert (await call(headers, "0.0.0.0"))[0]["status"] == 403


async def test_lifespan_passes() -> None:
    assert await call([], kind="lifespan") == [{"type": "through"}]


def test_what_loopback_is() -> None:
    for host in ("127.0.0.1", "127.255.255.254", "::1", "[::1]", "localhost", "Localhost"):
        assert is_loopback(host)
    for host in ("0.0.0.0", "::", "128.0.0.1", "", "localhost.", "local", "::ffff:10.0.0.1"):
        assert not is_loopback(host)


@pytest.mark.parametrize(
    ("host", "welcome"),
    [
        ("skep.example", True),
        ("SKEP.example", True),
        ("127.0.0.1:8420", True),
        ("skep.example:8420", False),
        ("evil.skep.example", False),
        ("evil.example", False),
        ("", False),
    ],
)
async def test_behind_a_proxy_its_public_name_is_welcome_too(host: str, welcome: bool) -> None:
    """Fault 52: that name and no other."""
    sent = await call([("host", host)], public=host_of("https://skep.example/skep"))
    assert (sent == [{"type": "through"}]) is welcome


@pytest.mark.parametrize(
    ("path", "seen"),
    [
        ("/livez", "/skep/livez"),
        ("/skep/livez", "/skep/livez"),
        ("/skep", "/skep"),
        ("/skeptic", "/skep/skeptic"),
    ],
)
async def test_a_call_is_seen_below_the_public_path(path: str, seen: str) -> None:
    """Whether the proxy takes the path away or not."""
    found: list[Any] = []

    async def app(scope: Any, _receive: Any, _send: Any) -> None:
        found.append((scope["root_path"], scope["path"]))

    async def nothing(*_: Any) -> Any:
        return None

    await Prefix(app, root_of("https://skep.example/skep/"))(
        {"type": "http", "path": path}, nothing, nothing
    )
    assert found == [("/skep", seen)]
