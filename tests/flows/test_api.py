"""Bad input over real HTTP: each gets problem+json with a stable code and a sentence that
says what to do, nothing is stored and the ledger does not move."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio
import zstandard

from skep.center.auth import Role
from skep.model.agent import Registration
from skep.model.block import BlockReport
from skep.model.request import Outcome
from skep.testing.centers import Answer, RunningCenter, running_center, works_of
from skep.wire import codec
from skep.wire.messages import Heartbeat, LeaseAsk, Register, Report
from skep.wire.problem import Problem

LIMIT = 100_000
URL = "http://example.com/"


pytestmark = pytest.mark.asyncio(loop_scope="module")


@asynccontextmanager
async def center_with_one_request(folder: Path) -> AsyncIterator[RunningCenter]:
    """In a run that is called `r`."""
    async with running_center(folder, center_body_limit=LIMIT) as running:
        await running.open_run("r")
        await running.put("r", [f"{URL}first"])
        yield running


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


async def refused(center: RunningCenter, answer: Answer, status: int, code: str) -> Problem:
    """The answer is a proper refusal, and everything is as it was."""
    problem = answer.problem()
    assert (answer.status, problem.code) == (status, code), problem.detail
    assert problem.type == f"urn:skep:problem:{code}"
    assert len(problem.detail.split()) >= 4, "a sentence, not a word"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert (await center.ledger()).accepted == 1
    assert [run["id"] for run in (await center.admin.get("/api/v1/runs")).json()["items"]] == ["r"]
    return problem


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
        assert "$[1]" in problem.detail


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
    "item",
    [[1, 0, {"x": 10**30}], [10**30, 0, {}], [1, 10**30, {}], [-1, 0, {}], [1, -1, {}]],
    ids=str,
)
async def test_items_that_no_store_could_keep(center: RunningCenter, item: Any) -> None:
    """S6: a turn is refused whole, not half kept and not with a bug."""
    driver = (await center.admin.post("/requestqueue/r/driver", {})).json()["driver"]
    turn = {"driver": driver, "items": [item], "requests": [{"uri": f"{URL}new"}]}
    answer = await center.admin.post("/requestqueue/r/turn", turn)
    await refused(center, answer, 400, "invalid_input")
    assert (await center.admin.get("/api/v1/runs/r/items")).json()["items"] == []


BAD_NAMES = ["..", "a%2Fb", "a%00b", "a%0Ab", "%2e%2e%2fetc", "a%20b", "%C3%A9", "x" * 65, "%FF"]


@pytest.mark.parametrize("name", BAD_NAMES)
async def test_a_name_that_no_run_can_have(center: RunningCenter, name: str) -> None:
    """Fault 51: names become parts of paths and of tables. Every route says the same."""
    calls = (
        ("PUT", f"/api/v1/runs/{name}", b"{}"),
        ("GET", f"/api/v1/runs/{name}", None),
        ("POST", f"/api/v1/runs/{name}/pause", None),
        ("POST", f"/api/v1/runs/{name}/revive", None),
        ("POST", f"/requestqueue/{name}", b"[]"),
        ("GET", f"/requestqueue/{name}", None),
        ("POST", f"/requestqueue/{name}/collected", b'{"blocks":[]}'),
        ("POST", f"/requestqueue/{name}/driver", b"{}"),
        ("POST", f"/requestqueue/{name}/read", b"{}"),
        ("POST", f"/requestqueue/{name}/turn", b'{"driver":1}'),
        ("GET", f"/api/v1/runs/{name}/items", None),
        ("GET", f"/api/v1/ledger?run={name}", None),
    )
    for method, path, body in calls:
        answer = await center.admin.send(method, path, body)
        code = answer.problem().code
        # A slash or dots may also make it another path: that is not found, and no run.
        assert code in {"invalid_input", "not_found", "method_not_allowed"}, (path, code)
    await refused(center, answer, answer.status, code)
    if name not in {"..", "a%2Fb", "%2e%2e%2fetc"}:
        answer = await center.admin.get(f"/api/v1/runs/{name}")
        await refused(center, answer, 400, "invalid_input")


@pytest.mark.parametrize(
    "settings",
    [
        {"priority": 6},
        {"retries": -1},
        {"block_size": 0},
        {"time_limit": 0},
        {"surprise": 1},
        {"accept_status": [10**30]},
        {"headers": {"X": 1}},
    ],
    ids=str,
)
async def test_settings_that_are_not_valid(center: RunningCenter, settings: Any) -> None:
    """D1: checked before the run is stored, and the error names the field."""
    answer = await center.admin.put("/api/v1/runs/new", {"settings": settings})
    problem = await refused(center, answer, 400, "malformed")
    assert next(iter(settings)) in problem.detail


@pytest.mark.parametrize(
    "body",
    [
        {"settings": {"headers": {"X": "a\r\nY: b"}}},
        {"settings": {"headers": {"X\r\nY": "b"}}},
        {"settings": {"downloader": "gopher"}},
        {"job": "a\nb"},
        {"job": "x" * 201},
    ],
    ids=str,
)
async def test_runs_that_no_agent_could_work_for(center: RunningCenter, body: Any) -> None:
    """D1, fault 70: header injection and unknown downloaders end at the door."""
    answer = await center.admin.put("/api/v1/runs/new", body)
    await refused(center, answer, 400, "invalid_input")


@pytest.mark.parametrize("what", ["x", "-1", "1.5", "%00", "9" * 19, "1e3", "%D9%A1", "0x1"])
@pytest.mark.parametrize("path", ["requests/{}", "requests/{}/body", "requests/{}/record"])
async def test_ids_that_are_no_numbers(center: RunningCenter, path: str, what: str) -> None:
    answer = await center.admin.get(f"/api/v1/{path.format(what)}")
    await refused(center, answer, 400, "invalid_input")


async def test_numbers_that_are_no_ids(center: RunningCenter) -> None:
    for path, code in (
        ("requests/999999999999999999", "not_found"),
        ("requests/77/body", "not_found"),
        ("requests/1/body", "not_found"),
        ("blocks/999999999999999999", "unknown_block"),
        ("runs/other", "unknown_run"),
    ):
        await refused(center, await center.admin.get(f"/api/v1/{path}"), 404, code)


@pytest.mark.parametrize(
    "path",
    [
        "/requestqueue/r?limit=0",
        "/requestqueue/r?limit=-1",
        "/requestqueue/r?limit=x",
        "/requestqueue/r?limit=101",
        "/api/v1/runs?limit=-5",
        "/api/v1/runs?before=nan",
        "/api/v1/ledger?audit=perhaps",
        "/api/v1/agents/a/vitals?seconds=-1",
        "/api/v1/agents/a/vitals?seconds=inf",
    ],
)
async def test_queries_that_are_not_valid(center: RunningCenter, path: str) -> None:
    await refused(center, await center.admin.get(path), 400, "invalid_input")


async def test_blocks_to_collect_that_are_no_blocks(center: RunningCenter) -> None:
    for blocks in ([-1], [2**63], ["1"], list(range(10_001))):
        answer = await center.admin.post("/requestqueue/r/collected", {"blocks": blocks})
        await refused(center, answer, 400, "malformed")


async def test_a_run_that_is_not_there(center: RunningCenter) -> None:
    """The sentence says how to make one."""
    answer = await center.admin.post("/requestqueue/other", [URL])
    problem = await refused(center, answer, 404, "unknown_run")
    assert "PUT /api/v1/runs/other" in problem.detail


@pytest.mark.parametrize("verb", ["finish", "cancel"])
async def test_a_run_that_has_ended(fresh: RunningCenter, verb: str) -> None:
    await fresh.admin.post(f"/api/v1/runs/r/{verb}")
    answer = await fresh.admin.post("/requestqueue/r", [f"{URL}more"])
    problem = await refused(fresh, answer, 409, "conflict")
    assert "takes no more requests" in problem.detail


async def test_a_verb_that_is_none(center: RunningCenter) -> None:
    await refused(center, await center.admin.post("/api/v1/runs/r/explode"), 404, "not_found")
    answer = await center.admin.post("/api/v1/agents/a1/explode")
    await refused(center, answer, 404, "not_found")
    answer = await center.admin.post("/api/v1/agents/nobody/disable")
    await refused(center, answer, 404, "unknown_agent")


async def test_a_path_and_a_method_that_are_none(center: RunningCenter) -> None:
    """A 405 names every method of the path, as the standard wants."""
    await refused(center, await center.admin.get("/nope"), 404, "not_found")
    answer = await center.admin.send("DELETE", "/requestqueue/r")
    await refused(center, answer, 405, "method_not_allowed")
    allowed = {method.strip() for method in answer.headers["Allow"].split(",")}
    assert allowed == {"GET", "HEAD", "POST"}


async def test_a_stale_token_changes_nothing_and_is_counted(fresh: RunningCenter) -> None:
    """Faults 6, 30: the report of an agent that lost its lease is refused by its token."""
    first, second = fresh.hand_agent("a1"), fresh.hand_agent("a2")
    await first.register()
    await second.register()
    await fresh.dispatched()
    (old,) = await first.lease()
    await first.give_back(old)
    (new,) = await second.lease()
    assert (new.id, new.token) == (old.id, old.token + 1)
    before = await fresh.ledger()
    assert await first.finish(old) == "stale"
    assert await fresh.ledger() == before
    assert await fresh.metric("skep_fenced_writes_total") == 1
    assert await second.finish(new) == "stored"
    assert await second.finish(new) == "duplicate"
    assert (await fresh.ledger()).done == 1
    assert await fresh.metric("skep_fenced_writes_total") == 1
    assert await fresh.metric("skep_duplicate_reports_total") == 1


async def test_a_report_about_other_peoples_requests(fresh: RunningCenter) -> None:
    """Fault 65: an agent cannot end what was not leased to it."""
    await fresh.put("r", [{"uri": f"{URL}other", "priority": 0}])
    agent = fresh.hand_agent()
    await agent.register()
    await fresh.dispatched()
    (block,) = await agent.lease()
    (work,) = works_of(block)
    other = 1 if work.id != 1 else 2
    before = await fresh.ledger()
    outcomes = [Outcome(other, status=200)]
    answer = await agent.call("block", Report("a1", [BlockReport(block.id, block.token, outcomes)]))
    assert (answer.status, answer.problem().code) == (400, "invalid_input")
    assert await fresh.ledger() == before
    assert await agent.report(BlockReport(999, 1, [])) == ["unknown"]


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome(1, failure="tired"),
        Outcome(1, offset=0, length=5),
        Outcome(1, offset=-1, length=1),
        Outcome(1, status=-1),
        Outcome(1, elapsed_us=2**63),
        Outcome(1, received=-5),
    ],
    ids=str,
)
async def test_outcomes_that_no_honest_agent_sends(fresh: RunningCenter, outcome: Outcome) -> None:
    """Fault 65: refused before anything is written."""
    agent = fresh.hand_agent()
    await agent.register()
    await fresh.dispatched()
    (block,) = await agent.lease()
    before = await fresh.ledger()
    report = Report("a1", [BlockReport(block.id, block.token, [outcome])])
    answer = await agent.call("block", report)
    assert (answer.status, answer.problem().code) == (400, "invalid_input")
    assert await fresh.ledger() == before
    assert await agent.finish(block) == "stored"


async def test_what_servers_say_is_kept_without_its_control_characters(
    fresh: RunningCenter,
) -> None:
    """Fault 70: a reason phrase must not write a second line into anybody's log."""
    agent = fresh.hand_agent()
    await agent.register()
    await fresh.dispatched()
    (block,) = await agent.lease()
    said = Outcome(1, "status", 404, "gone\x00\r\n\x1b[31mERROR fake line")
    await agent.report(BlockReport(block.id, block.token, [said]))
    detail = (await fresh.admin.get("/api/v1/requests/1")).json()
    assert detail["attempts"][0]["detail"] == "gone    [31mERROR fake line"


@pytest.mark.parametrize("agent", ["", "x" * 65, "a\nb", "a\x00b", "é"])
async def test_an_id_that_no_agent_can_have(center: RunningCenter, agent: str) -> None:
    """NUL, control characters and length, on every route of agents."""
    messages: dict[str, Any] = {
        "register": Register(Registration(agent, "a")),
        "heartbeat": Heartbeat(agent),
        "lease": LeaseAsk(agent),
        "block": Report(agent, []),
        "giveback": {"agent": agent, "blocks": []},
    }
    for name, message in messages.items():
        answer = await center.agent.packed(f"/node/{name}", message)
        await refused(center, answer, 400, "invalid_input")
    assert (await center.admin.get("/api/v1/agents")).json() == {"items": []}


@pytest.mark.parametrize(
    "more",
    [{"name": "a\nb"}, {"labels": {"x": "y" * 201}}, {"kinds": ["http"] * 65}, {"os": "\x1b[2J"}],
    ids=lambda more: next(iter(more)),
)
async def test_a_registration_that_people_could_not_read(center: RunningCenter, more: Any) -> None:
    """Fault 70: names and labels go into logs and onto terminals."""
    body = {"registration": {"id": "a1", "name": "a1", **more}}
    answer = await center.agent.post("/node/register", body)
    await refused(center, answer, 400, "invalid_input")


async def test_an_agent_that_never_registered(center: RunningCenter) -> None:
    """It is told to register; its beat is told so too."""
    agent = center.hand_agent("ghost")
    answer = await agent.call("lease", LeaseAsk("ghost"))
    problem = await refused(center, answer, 404, "unknown_agent")
    assert "/node/register" in problem.detail
    assert (await agent.beat()).known is False


@pytest.mark.parametrize("version", ["0", "2", "99", "x", "1.0", "-1", "9" * 5000])
async def test_a_protocol_that_is_not_spoken(center: RunningCenter, version: str) -> None:
    """Fault 44: a clear refusal that says which versions are spoken."""
    for path in ("/node/lease", "/api/v1/runs/new"):
        answer = await center.admin.send("PUT", path, b"{}", {"skep-protocol": version})
        if path == "/api/v1/runs/new":
            problem = await refused(center, answer, 426, "old_protocol")
            assert "upgrade" in problem.detail
    body = Register(Registration("a1", "a1"), protocol=0)
    await refused(center, await center.agent.packed("/node/register", body), 426, "old_protocol")


async def test_the_current_protocol_is_spoken(center: RunningCenter) -> None:
    answer = await center.admin.send("GET", "/api/v1/runs", headers={"skep-protocol": "1"})
    assert answer.status == 200


async def test_no_token_and_a_wrong_one(center: RunningCenter) -> None:
    """Fault 48: the answer says how to send one."""
    answer = await center.anyone.post("/requestqueue/r", [URL])
    problem = await refused(center, answer, 401, "unauthorized")
    assert "Bearer" in problem.detail
    assert answer.headers["WWW-Authenticate"] == "Bearer"
    for value in ("Bearer nope", "Bearer ", "Basic YTpi", center.admin.token, "bearer"):
        answer = await center.anyone.send(
            "POST", "/requestqueue/r", b"[]", {"Authorization": value}
        )
        await refused(center, answer, 401, "unauthorized")


async def test_a_token_may_be_one_agent_only(fresh: RunningCenter) -> None:
    """Fault 65: with the token of a1 nobody is a2, on any route."""
    mine = await fresh.caller(Role.AGENT, "a1")
    assert (await mine.packed("/node/register", Register(Registration("a1", "a1")))).status == 200
    messages: dict[str, Any] = {
        "register": Register(Registration("a2", "a2")),
        "heartbeat": Heartbeat("a2"),
        "lease": LeaseAsk("a2"),
        "block": Report("a2", []),
        "giveback": {"agent": "a2", "blocks": []},
    }
    for name, message in messages.items():
        await refused(fresh, await mine.packed(f"/node/{name}", message), 403, "forbidden")


async def test_tokens_are_kept_as_digests_only(fresh: RunningCenter) -> None:
    """Faults 48, 68: no token is in the database; the files that hold two are 0600."""
    issued = (await fresh.admin.post("/api/v1/agent-tokens", {"agent": "a9"})).json()["token"]
    tokens = [fresh.admin.token, fresh.agent.token, issued]
    assert len(set(tokens)) == 3
    assert all(len(token) > 40 for token in tokens)
    with sqlite3.connect(fresh.folder / "skep.db") as database:
        (count,) = database.execute("SELECT count(*) FROM tokens").fetchone()
    database.close()
    assert count == 3, "the database is the one that holds them"
    for file in fresh.folder.glob("skep.db*"):
        content = file.read_bytes()
        assert [token for token in tokens if token.encode() in content] == []
    for name in ("admin.token", "agent.token"):
        assert (fresh.folder / name).stat().st_mode & 0o777 == 0o600


async def test_an_idempotency_key_is_taken_and_a_batch_counts_once(fresh: RunningCenter) -> None:
    """Fault 3: the same batch again is known, with the key and without it."""
    body = msgspec.json.encode([f"{URL}{n}" for n in range(10)])
    headers = {"Content-Type": codec.JSON, "Idempotency-Key": "once"}
    first = (await fresh.admin.send("POST", "/requestqueue/r", body, headers)).json()
    again = (await fresh.admin.send("POST", "/requestqueue/r", body, headers)).json()
    plain = (await fresh.admin.send("POST", "/requestqueue/r", body)).json()
    assert [first, again, plain] == [
        {"new": 10, "known": 0},
        {"new": 0, "known": 10},
        {"new": 0, "known": 10},
    ]
    assert (await fresh.ledger("r")).accepted == 11


async def test_people_see_every_setting_of_a_run(center: RunningCenter) -> None:
    """R3: defaults too, in the list and alone; agents get the same."""
    settings = (await center.admin.get("/api/v1/runs/r")).json()["run"]["settings"]
    assert settings["block_size"] == 100
    assert settings["retries"] == 0
    assert settings["priority"] == 5
    assert settings["time_limit"] == 120.0
    listed = (await center.admin.get("/api/v1/runs")).json()["items"][0]["settings"]
    assert listed == settings
