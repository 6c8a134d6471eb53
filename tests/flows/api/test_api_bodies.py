"""Bad bodies over real HTTP: too large, too deep, not what they say. Each gets problem+json with a
stable code, nothing is stored and the ledger does not move."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio
import zstandard

from skep.testing.grounds.centers import RunningCenter, running_center
from skep.testing.grounds.refused_calls import LIMIT, URL, center_with_one_request, refused
from skep.wire import codec

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def center(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningCenter]:
    """One for all, because what is refused changes nothing; every test checks that."""
    async with center_with_one_request(tmp_path_factory.mktemp("center")) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def fresh(tmp_path: Path) -> AsyncIterator[RunningCenter]:
    """For tests that change something."""
    async with center_with_one_request(tmp_path) as running:
        yield running


DEEP = b'[{"uri":"http://a/","meta":{"x":' + b"[" * 20_000 + b"]" * 20_000 + b"}}]"


BAD_REQUESTS: dict[str, tuple[Any, int, str]] = {
    "not a URL": (["quotes.example.com"], 400, "not_a_url"),
    "empty text": ([""], 400, "not_a_url"),
    "a space in the host": (["http://a b/"], 400, "not_a_url"),
    "a NUL in the path": (["http://a/\x00"], 400, "not_a_url"),
    "a line break in the path": (["http://a/\r\nHost: b"], 400, "not_a_url"),
    "a backslash before the host": (["http://good.com\\@evil.com/"], 400, "not_a_url"),
    "a letter that becomes a slash": (["http://evil.c\u2100.example.com/"], 400, "not_a_url"),
    "an open bracket": (["http://[::1/"], 400, "not_a_url"),
    "a port out of range": (["http://a:70000/"], 400, "not_a_url"),
    "a scheme without downloader": (["gopher://a/"], 400, "unknown_scheme"),
    "a URL of 8001 characters": ([f"http://a/{'x' * 7992}"], 413, "too_large"),
    "an unknown field": ([{"uri": URL, "prioritty": 1}], 400, "malformed"),
    "a number for a URL": ([1], 400, "malformed"),
    "a text for a number": ([{"uri": URL, "priority": "high"}], 400, "malformed"),
    "an object for the list": ({"uri": URL}, 400, "malformed"),
    "null": (b"null", 400, "malformed"),
    "no body": (b"", 400, "malformed"),
    "half a body": (b'["http://a/', 400, "malformed"),
    "not UTF-8": (b'["http://a/\xff\xfe"]', 400, "malformed"),
    "half a surrogate": (b'["http://a/\\ud800"]', 400, "malformed"),
    "nested too deep": (DEEP, 400, "malformed"),
    "priority -2": ([{"uri": URL, "priority": -2}], 400, "invalid_input"),
    "priority 6": ([{"uri": URL, "priority": 6}], 400, "invalid_input"),
    "expired already": ([{"uri": URL, "expires_in": 0}], 400, "invalid_input"),
    "expired yesterday": ([{"uri": URL, "expires_in": -86400.0}], 400, "invalid_input"),
    "expires after the sun": ([{"uri": URL, "expires_in": 1e300}], 400, "invalid_input"),
    "a method with a space": ([{"uri": URL, "method": "GET /"}], 400, "invalid_input"),
    "a small method": ([{"uri": URL, "method": "get"}], 400, "invalid_input"),
    "a header that ends early": (
        [{"uri": URL, "headers": {"X": "a\r\nSet-Cookie: b"}}],
        400,
        "invalid_input",
    ),
    "a NUL in a header": ([{"uri": URL, "headers": {"X": "a\x00"}}], 400, "invalid_input"),
    "a colon in a header's name": ([{"uri": URL, "headers": {"X:": "a"}}], 400, "invalid_input"),
    "a line break in a header's name": (
        [{"uri": URL, "headers": {"X\nY": "a"}}],
        400,
        "invalid_input",
    ),
    "an integer that no store holds": (
        b'[{"uri":"http://a/","meta":{"x":1000000000000000000000}}]',
        400,
        "invalid_input",
    ),
}


@pytest.mark.parametrize("what", BAD_REQUESTS)
async def test_bad_requests_are_refused_whole(center: RunningCenter, what: str) -> None:
    """D1, fault 70: what is not valid is not stored, with a good request before and after."""
    body, status, code = BAD_REQUESTS[what]
    good = f"{URL}good"
    data = msgspec.json.encode([good, *body, good]) if isinstance(body, list) else body
    data = msgspec.json.encode(data) if isinstance(data, dict) else data
    headers = {"Content-Type": codec.JSON}
    answer = await center.admin.send("POST", "/requestqueue/r", data, headers)
    problem = await refused(center, answer, status, code)
    if isinstance(body, list) and code != "malformed":
        assert problem.detail.startswith("request 1:")
    if isinstance(body, list) and code == "malformed":
        assert "[1]" in problem.detail
        assert "$" not in problem.detail


async def test_one_bad_request_in_a_thousand_stops_the_batch(center: RunningCenter) -> None:
    """D1: the whole batch is refused, and the error names the place."""
    urls = [f"{URL}{n}" for n in range(1000)]
    urls[617] = "mailto:someone"
    problem = await refused(
        center, await center.admin.post("/requestqueue/r", urls), 400, "not_a_url"
    )
    assert problem.detail.startswith("request 617: 'mailto:someone' is not a URL")


async def test_too_many_requests_in_one_call(center: RunningCenter, tmp_path: Path) -> None:
    """The door has a size; a larger batch is sent in parts."""
    short = ["x"] * 20_000 + ["y"] * 10_001
    answer = await center.admin.post("/requestqueue/r", short)
    await refused(center, answer, 413, "too_large")  # over the bytes of this center
    async with running_center(tmp_path) as roomy:
        await roomy.open_run("r")
        await roomy.put("r", [URL])
        answer = await roomy.admin.post("/requestqueue/r", ["x"] * 50_001)
        problem = await refused(roomy, answer, 413, "too_large")
        assert "50000" in problem.detail


async def test_a_body_that_says_that_it_is_too_large(center: RunningCenter) -> None:
    """Fault 37: told by its Content-Length, before a byte of it is read."""
    data = b'["http://a/' + b"x" * LIMIT + b'"]'
    answer = await center.admin.send("POST", "/requestqueue/r", data, {"Content-Type": codec.JSON})
    problem = await refused(center, answer, 413, "too_large")
    assert str(LIMIT) in problem.detail


async def test_a_chunked_body_that_does_not_say_so(center: RunningCenter) -> None:
    """Fault 37: without Content-Length the bytes are counted as they come."""

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(30):
            yield b" " * 4096

    answer = await center.admin.send(
        "POST", "/requestqueue/r", chunks(), {"Content-Type": codec.JSON}
    )
    await refused(center, answer, 413, "too_large")


def bomb(size: int, *, announced: bool) -> bytes:
    compressor = zstandard.ZstdCompressor(level=3)
    if announced:
        return compressor.compress(b" " * size)
    stream = compressor.compressobj()
    return b"".join(stream.compress(b" " * 2**20) for _ in range(size // 2**20)) + stream.flush()


@pytest.mark.parametrize("announced", [True, False], ids=["announced", "hidden"])
async def test_a_compressed_bomb(center: RunningCenter, announced: bool) -> None:
    """Fault 57: a body is unpacked up to the limit and no further."""
    data = bomb(64 * 2**20, announced=announced)
    assert len(data) < LIMIT, "small enough to be let in"
    headers = {"Content-Type": codec.JSON, "Content-Encoding": "zstd"}
    answer = await center.admin.send("POST", "/requestqueue/r", data, headers)
    await refused(center, answer, 413, "too_large")


@pytest.mark.parametrize("encoding", ["gzip", "br", "zstd, zstd", "x"])
async def test_an_encoding_that_is_not_known(center: RunningCenter, encoding: str) -> None:
    """The answer says which encodings are."""
    headers = {"Content-Type": codec.JSON, "Content-Encoding": encoding}
    answer = await center.admin.send("POST", "/requestqueue/r", b"[]", headers)
    problem = await refused(center, answer, 400, "malformed")
    assert "zstd" in problem.detail


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/x"])
async def test_a_content_type_that_a_form_can_send(center: RunningCenter, kind: str) -> None:
    """Fault 52: what a foreign page could send without asking is not taken."""
    answer = await center.admin.send("POST", "/requestqueue/r", b"[]", {"Content-Type": kind})
    problem = await refused(center, answer, 400, "malformed")
    assert codec.JSON in problem.detail


async def test_not_zstd_at_all(center: RunningCenter) -> None:
    headers = {"Content-Type": codec.JSON, "Content-Encoding": "zstd"}
    answer = await center.admin.send("POST", "/requestqueue/r", b'["http://a/"]', headers)
    await refused(center, answer, 400, "malformed")


BAD_PACKED = {
    "not msgpack": b"\xc1",
    "cut off": msgspec.msgpack.encode({"agent": "a1", "blocks": []})[:-1],
    "more behind it": msgspec.msgpack.encode({"agent": "a1", "blocks": []}) + b"\x00",
    "a map that is longer than the body": b"\xdf\xff\xff\xff\xff",
    "a text that is longer than the body": b"\xdb\xff\xff\xff\xff",
    "a list": msgspec.msgpack.encode([1, 2]),
    "wrong types": msgspec.msgpack.encode({"agent": 7, "blocks": {}}),
    "nothing": b"",
    "nested too deep": b"\x91" * 50_000,
}


@pytest.mark.parametrize("what", BAD_PACKED)
async def test_malformed_msgpack(center: RunningCenter, what: str) -> None:
    """Fault 69: what an agent sends is data with a schema, or it is refused."""
    headers = {"Content-Type": codec.MSGPACK}
    for name in ("register", "heartbeat", "lease", "giveback", "block"):
        answer = await center.agent.send("POST", f"/node/{name}", BAD_PACKED[what], headers)
        assert answer.problem().code == "malformed", name
    await refused(center, answer, 400, "malformed")


async def test_meta_that_could_not_be_given_back(center: RunningCenter) -> None:
    """Fault 34: msgpack can say what JSON cannot; a run would never read its block again."""
    for meta in ({"x": msgspec.msgpack.Ext(5, b"?")}, {"x": {None: 1}}, {"x": {(1, 2): 3}}):
        data = msgspec.msgpack.encode([{"uri": URL, "meta": meta}])
        answer = await center.admin.send(
            "POST", "/requestqueue/r", data, {"Content-Type": codec.MSGPACK}
        )
        problem = await refused(center, answer, 400, "invalid_input")
        assert "meta" in problem.detail


@pytest.mark.parametrize(
    ("item", "code"),
    [
        ([1, 0, {"x": 10**30}], "invalid_input"),
        ([10**30, 0, {}], "malformed"),
        ([1, 10**30, {}], "malformed"),
        ([-1, 0, {}], "invalid_input"),
        ([1, -1, {}], "invalid_input"),
    ],
    ids=str,
)
async def test_items_that_no_store_could_keep(center: RunningCenter, item: Any, code: str) -> None:
    """S6: a turn is refused whole, not half kept and not with a bug."""
    driver = (await center.admin.post("/requestqueue/r/driver", {})).json()["driver"]
    turn = {"driver": driver, "items": [item], "requests": [{"uri": f"{URL}new"}]}
    answer = await center.admin.post("/requestqueue/r/turn", turn)
    await refused(center, answer, 400, code)
    assert (await center.admin.get("/api/v1/runs/r/items")).json()["items"] == []
