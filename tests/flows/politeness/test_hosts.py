"""Politeness over the fleet: a center, real agents, servers that remember; API and CLI."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from skep.cli.main import run as command_line
from skep.downloaders.registry import kinds
from skep.model.block import BlockReport, Leased
from skep.model.hosts.host import Pace, SiteNote
from skep.model.request import Outcome
from skep.runtime.clock import SystemClock
from skep.settings import AgentSettings, EgressSettings
from skep.testing.doubles.toy_agent import running_agent
from skep.testing.grounds.centers import RunningCenter, running_center, works_of
from skep.testing.polling import until
from skep.testing.servers.recording_sites import Recorder, most_in_a_second
from skep.wire.messages import LeaseAsk, LeaseReply, Report

SLOW = "slow.example"
FAST = AgentSettings(concurrency=8, report_every=0.1, lease_wait=1.0, drain_seconds=1.0)


@pytest.fixture
async def center(tmp_path: Path) -> AsyncIterator[RunningCenter]:
    async with running_center(tmp_path) as running:
        yield running


async def leased(center: RunningCenter, agent: str = "a1") -> LeaseReply:
    answer = await center.hand_agent(agent).call("lease", LeaseAsk(agent, 5))
    return answer.read(LeaseReply)


def report(block: Leased, *notes: SiteNote, deferred: int = 0) -> BlockReport:
    """The first request was refused, the last `deferred` were put off."""
    numbers = [work.id for work in works_of(block)]
    outcomes = [Outcome(numbers[0], "status", 429)]
    outcomes += [Outcome(number, status=200) for number in numbers[1 : len(numbers) - deferred]]
    return BlockReport(block.id, block.token, outcomes, True, b"", list(notes))


async def test_a_lease_names_the_pace_of_its_hosts(center: RunningCenter) -> None:
    """politeness: spacing, concurrency and robots.txt travel with the block."""
    await center.open_run("r", host_concurrency=3)
    await center.put("r", [f"http://www.{SLOW}/{n}" for n in range(40)])
    agent = center.hand_agent()
    registered = await agent.register()
    assert registered.alive_after == center.services.settings.center.alive_after
    await center.dispatched()
    reply = await leased(center)
    (block,) = reply.blocks
    (pace,) = reply.sites
    assert (pace.host, pace.concurrency) == (SLOW, 3)
    assert pace.spacing == pytest.approx(0.525)
    assert (pace.robots, pace.wait, block.size) == (True, 0.0, 19)
    assert (await center.ledger("r")).delayed == 21, "parked"
    # No other block gets the host meanwhile, and the next holder of the block keeps a distance.
    await center.hand_agent("a2").register()
    assert (await leased(center, "a2")).blocks == []
    await agent.give_back(block)
    again = await leased(center, "a2")
    assert [one.id for one in again.blocks] == [block.id]
    assert again.sites[0].wait == pytest.approx(0.525)


async def test_hosts_of_ones_own_have_no_pace_without_a_rule(center: RunningCenter) -> None:
    await center.open_run("r")
    await center.put("r", [f"http://127.0.0.1/{n}" for n in range(120)])
    await center.hand_agent().register()
    await center.dispatched()
    reply = await leased(center)
    assert (sorted(block.size for block in reply.blocks), reply.sites) == ([20, 100], [])


async def test_a_refusal_is_seen_and_ends_when_a_person_says_so(center: RunningCenter) -> None:
    """politeness: Retry-After rests the host; `clear` lets everything go on at once."""
    await center.open_run("r", retries=3)
    await center.put("r", [f"http://{SLOW}/{n}" for n in range(10)])
    agent = center.hand_agent()
    await agent.register()
    await center.dispatched()
    (block,) = (await leased(center)).blocks
    put_off = [work.id for work in works_of(block)][-4:]
    note = SiteNote(
        SLOW, 6, 1, 1, 0, 3_000_000, 600, 2.0, deferred=put_off, trouble="429", cool=900.0
    )
    assert await agent.report(report(block, note, deferred=4)) == ["stored"]
    seen = (await center.admin.get(f"/api/v1/sites/{SLOW}")).json()
    counts = [seen[name] for name in ("requests", "failed", "refused", "deferred", "received")]
    assert counts == [6, 1, 1, 4, 600]
    assert (seen["reason"], seen["strikes"], seen["latency"]) == ("429", 1, 0.5)
    assert seen["cooling_until"] > center.services.clock.now() + 800
    await center.dispatched()
    assert (await leased(center)).blocks == []
    await center.admin.send("DELETE", f"/api/v1/sites/{SLOW}")
    await center.dispatched()
    (again,) = (await leased(center)).blocks
    assert {work.id for work in works_of(again)} == set(put_off)


async def test_invalid_notes_are_refused_and_too_much_is_cut(center: RunningCenter) -> None:
    await center.open_run("r")
    await center.put("r", [f"http://{SLOW}/{n}" for n in range(3)])
    agent = center.hand_agent()
    await agent.register()
    await center.dispatched()
    (block,) = (await leased(center)).blocks
    nan = Report("a1", [report(block, SiteNote(SLOW, delay=float("nan")))])
    # Refused by the bounds of the message, before its meaning is looked at.
    assert (await agent.call("block", nan)).problem().code == "malformed"
    for absurd in (
        SiteNote(SLOW, -1),
        SiteNote(SLOW, wait=-1.0),
        SiteNote(SLOW, received=2**62),
        SiteNote("no host at all"),
        SiteNote(""),
    ):
        answer = await agent.call("block", Report("a1", [report(block, absurd)]))
        assert answer.problem().code == "invalid_input"
    much = SiteNote(f"WWW.{SLOW}", 500, 500, delay=1e9, cool=1e12, trouble="4\x1b29" + 300 * "x")
    assert await agent.report(report(block, much)) == ["stored"]
    seen = (await center.admin.get(f"/api/v1/sites/{SLOW}")).json()
    assert (seen["requests"], seen["failed"], len(seen["reason"])) == (3, 3, 50)
    assert "\x1b" not in seen["reason"]
    assert seen["cooling_until"] <= center.services.clock.now() + 86_400


async def test_the_list_of_sites_is_read_in_pages(center: RunningCenter) -> None:
    for number in range(5):
        path = f"/api/v1/sites/host{number}.example"
        view = (await center.admin.put(path, {"rate": number})).json()
        assert view["rule"] == {"rate": number, "concurrency": None, "robots": None}
    names: list[str] = []
    after = ""
    while True:
        page = (await center.admin.get(f"/api/v1/sites?limit=2&after={after}")).json()
        names += [view["host"] for view in page["items"]]
        after = page["next"]
        if not after:
            break
    assert names == [f"host{number}.example" for number in range(5)]
    for host, status in (("a%20b", 400), ("a:80", 400), ("[::1]", 404), ("no.example", 404)):
        answer = await center.admin.get(f"/api/v1/sites/{host}")
        assert answer.status == status, host
    assert (await center.admin.put("/api/v1/sites/a.example", {"rate": -1})).status == 400
    assert (await center.admin.send("DELETE", "/api/v1/sites/a.example")).status == 404


async def test_the_command_line_shows_sets_and_clears(
    center: RunningCenter, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    token = tmp_path / "token"
    token.write_text(center.admin.token)
    token.chmod(0o600)

    async def skep(*words: str) -> tuple[int, str]:
        where = ("--center", center.url, "--token-file", str(token))
        code = await asyncio.to_thread(command_line, [*words, *where])
        return code, capsys.readouterr().out

    async def read(*words: str) -> Any:
        code, text = await skep(*words, "--json")
        assert code == 0
        return msgspec.json.decode(text)

    assert "no hosts yet" in (await skep("sites"))[1]
    assert (await skep("sites", "set", SLOW))[0] == 2
    rule = (await read("sites", "set", SLOW, "--rate", "0.5", "--no-robots"))["rule"]
    assert rule == {"rate": 0.5, "concurrency": None, "robots": False}
    code, text = await skep("sites", "show", SLOW)
    assert code == 0
    assert "1 in 2.1 s, 4 at once" in text
    assert "rate 0.5, robots False" in text
    assert "not requested" in text
    assert SLOW in (await skep("sites", "ls"))[1]
    assert [view["host"] for view in (await read("sites"))["items"]] == [SLOW]
    assert (await read("sites", "clear", SLOW))["rule"]["rate"] is None
    assert (await skep("sites", "show", "never.example"))[0] != 0


async def test_two_agents_and_two_runs_keep_one_rate(center: RunningCenter, tmp_path: Path) -> None:
    """politeness: for any agent and run, the server gets no more requests than its rule allows."""
    rate, count = 8, 12
    async with Recorder(1) as web, AsyncExitStack() as stack:
        host = web.hosts[0]
        await center.admin.put(f"/api/v1/sites/{host}", {"rate": rate, "concurrency": 2})
        for run in ("one", "two"):
            await center.open_run(run, block_size=4)
            await center.put(run, [web.url(1, f"/{run}/{n}") for n in range(count)])
        offered = kinds(SystemClock(), Random(3), EgressSettings(allow=("127.0.0.0/8",)))
        for name in ("a", "b"):
            folder = tmp_path / name
            folder.mkdir()
            token = center.agent.token
            await stack.enter_async_context(
                running_agent([center.url], token, folder, offered, FAST)
            )
        ledgers = center.services.store.ledgers
        await until(ledgers.read, lambda ledger: not ledger.open, seconds=40)
        starts = web.starts(host)[host]
        assert len(starts) == 2 * count
        assert most_in_a_second(starts, 0.95) <= rate
        assert web.most[host] <= 2
    seen = (await center.admin.get(f"/api/v1/sites/{host}")).json()
    assert (seen["requests"], seen["failed"]) == (2 * count, 0)
    assert (await center.ledger()).done == 2 * count


def test_a_pace_is_shown_as_it_travels() -> None:
    """The command line reads it by its places."""
    assert Pace.__struct_fields__[:5] == ("host", "spacing", "concurrency", "wait", "robots")
