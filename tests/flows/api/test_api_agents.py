"""What no honest agent sends, over real HTTP. Each gets problem+json with a stable code and a
sentence that says what to do, and nothing is stored."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from skep.center.http.authentication import Role
from skep.model.block import BlockReport
from skep.model.fleet.agent import Registration
from skep.model.request import Outcome
from skep.testing.grounds.centers import RunningCenter, works_of
from skep.testing.grounds.refused_calls import URL, center_with_one_request, refused
from skep.wire.messages import Heartbeat, LeaseAsk, Register, Report

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


@pytest.mark.parametrize(("age", "deaf"), [(60.0, 0.0), (0.0, 60.0)], ids=["late", "deaf"])
async def test_a_beat_that_waited_renews_no_lease(
    fresh: RunningCenter, age: float, deaf: float
) -> None:
    """C10: what is older than a silence that means death says nothing about now."""
    agent = fresh.hand_agent("a1")
    await agent.register()
    await fresh.dispatched()
    (block,) = await agent.lease()
    blocks = fresh.services.store.blocks
    before = (await blocks.get(block.id)).lease_until
    old = Heartbeat("a1", holding=[block.held], age=age, deaf=deaf)
    assert (await fresh.agent.packed("/node/heartbeat", old)).status == 200
    assert (await blocks.get(block.id)).lease_until == before
    new = Heartbeat("a1", holding=[block.held])
    assert (await fresh.agent.packed("/node/heartbeat", new)).status == 200
    assert (await blocks.get(block.id)).lease_until > before


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
    # A number that no store can keep does not even come to be looked at (S8).
    code = "malformed" if outcome.elapsed_us >= 2**63 else "invalid_input"
    assert (answer.status, answer.problem().code) == (400, code)
    assert await fresh.ledger() == before
    assert await agent.finish(block) == "stored"


async def test_what_servers_say_is_kept_without_its_control_characters(
    fresh: RunningCenter,
) -> None:
    """Fault 70: a reason phrase must not write a second line into a log."""
    agent = fresh.hand_agent()
    await agent.register()
    await fresh.dispatched()
    (block,) = await agent.lease()
    said = Outcome(1, "status", 404, "gone\x00\r\n\x1b[31mERROR fake line")
    await agent.report(BlockReport(block.id, block.token, [said]))
    detail = (await fresh.admin.get("/api/v1/requests/1")).json()
    assert detail["attempts"][0]["detail"] == "gone    [31mERROR fake line"


@pytest.mark.parametrize("agent", ["", "x" * 65, "a\nb", "a\x00b", "é", "a/b", "a,b", ".."])
async def test_an_id_that_no_agent_can_have(center: RunningCenter, agent: str) -> None:
    """NUL, control characters and length, on every route of agents; and ids that cannot be written
    in a path or a list, such as the list of agents to disable."""
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
    assert (await center.admin.get("/api/v1/agents")).json()["items"] == []


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
    assert (await agent.heartbeat()).known is False


@pytest.mark.parametrize("version", ["0", "2", "99", "x", "1.0", "-1", "9" * 5000])
async def test_a_protocol_that_is_not_supported(center: RunningCenter, version: str) -> None:
    """Fault 44: a clear refusal that names the supported versions."""
    for path in ("/node/lease", "/api/v1/runs/new"):
        answer = await center.admin.send("PUT", path, b"{}", {"skep-protocol": version})
        if path == "/api/v1/runs/new":
            problem = await refused(center, answer, 426, "old_protocol")
            assert "upgrade" in problem.detail
    body = Register(Registration("a1", "a1"), protocol=0)
    await refused(center, await center.agent.packed("/node/register", body), 426, "old_protocol")


async def test_the_current_protocol_is_supported(center: RunningCenter) -> None:
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
    """Fault 65: with the token of a1 no caller is a2, on any route."""
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


@pytest.mark.parametrize("path", ["/api/v1/agents/", "/api/v1/runs/", "/api/v1/jobs/", "/livez/"])
async def test_an_empty_name_is_told_and_leads_nowhere_else(
    fresh: RunningCenter, path: str
) -> None:
    """A redirect would answer another question, and send callers to whatever host they named."""
    answer = await fresh.admin.get(path)
    assert (answer.status, answer.problem().code) == (404, "not_found")
