"""The way of requests through a real center, over real HTTP, with an agent played by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from skep.lanes import dispatch
from skep.model.block import BlockReport
from skep.model.fleet.agent import Vitals
from skep.model.lane import Lane
from skep.model.ledger import Ledger
from skep.model.request import Outcome
from skep.testing.grounds.centers import RunningCenter, running_center, works_of
from skep.testing.grounds.queued_runs import SITE, fill, urls
from skep.testing.polling import until
from skep.wire.messages import LeaseAsk


@pytest.fixture
async def center(tmp_path: Path) -> AsyncIterator[RunningCenter]:
    """Retries come soon, the rest is as shipped."""
    async with running_center(tmp_path, lanes_retry_first=0.01, lanes_retry_cap=0.02) as running:
        yield running


@pytest.mark.parametrize("plain", [True, False], ids=["JSON", "msgpack and zstd"])
async def test_a_request_from_door_to_door(center: RunningCenter, plain: bool) -> None:
    """C2, C7, C8: register, beat, lease, report; the run reads its finished requests."""
    await center.open_run("r", block_size=50)
    offered = [{"uri": url, "meta": {"n": n}} for n, url in enumerate(urls(120))]
    assert await center.put("r", offered) == {"new": 120, "known": 0}
    await center.dispatched()
    agent = center.hand_agent(plain=plain)
    rules = await agent.register()
    assert (rules.heartbeat_every, rules.lease_seconds) == (3.0, 30.0)
    reply = await agent.heartbeat(vitals=Vitals(cpu=0.5, active=3))
    assert (reply.known, reply.lost, reply.commands) == (True, [], [])

    blocks = await agent.lease(want=10)
    assert [block.size for block in blocks] == [50, 50, 20]
    assert (await center.ledger("r")).leased == 120
    seen = [work.uri for block in blocks for work in works_of(block)]
    assert seen == urls(120)
    for block in blocks:
        assert await agent.finish(block) == "stored"
    assert await center.ledger("r") == Ledger(accepted=120, done=120)

    found = (await center.admin.get("/requestqueue/r")).json()["blocks"]
    assert [block["id"] for block in found] == [block.id for block in blocks]
    requests = [request for block in found for request in block["requests"]]
    assert [request["uri"] for request in requests] == urls(120)
    assert [request["meta"] for request in requests] == [{"n": n} for n in range(120)]
    assert {(request["state"], request["status"]) for request in requests} == {("done", 200)}
    assert {block["agent"] for block in found} == {"a1"}


async def test_the_settings_of_a_run_travel_with_its_blocks(center: RunningCenter) -> None:
    """A2: an agent needs no second call to know how to download."""
    await fill(center, "r", 1, retries=3, headers={"X-A": "b"})
    agent = center.hand_agent()
    await agent.register()
    reply = (await agent.caller.post("/node/lease", LeaseAsk("a1"))).json()
    assert reply["runs"]["r"]["retries"] == 3
    assert reply["runs"]["r"]["headers"] == {"X-A": "b"}
    assert reply["runs"]["r"]["time_limit"] == 120.0


async def test_reading_changes_nothing_and_collecting_does(center: RunningCenter) -> None:
    """C8: finished blocks stay until their run says that it has them. U11: a block that the run
    does not have is an error."""
    await fill(center, "r", 30, block_size=10)
    agent = center.hand_agent()
    await agent.register()
    blocks = await agent.lease(want=3)
    for block in blocks:
        await agent.finish(block)
    for _ in range(2):
        found = (await center.admin.get("/requestqueue/r?limit=2")).json()["blocks"]
        assert [block["id"] for block in found] == [blocks[0].id, blocks[1].id]
    strange = {"blocks": [blocks[0].id, 999]}
    refused = await center.admin.post("/requestqueue/r/collected", strange)
    assert (refused.status, "run r has no block 999; nothing" in refused.problem().detail) == (
        404,
        True,
    )
    collect = {"blocks": [blocks[0].id, blocks[1].id]}
    answer = await center.admin.post("/requestqueue/r/collected", collect)
    assert answer.json() == {"blocks": 2}
    again = await center.admin.post("/requestqueue/r/collected", collect)
    assert again.json() == {"blocks": 0}
    found = (await center.admin.get("/requestqueue/r")).json()["blocks"]
    assert [block["id"] for block in found] == [blocks[2].id]


async def test_seven_priorities_come_out_in_the_order_of_four_lanes(center: RunningCenter) -> None:
    """D2: super, high, mid, low; in a lane the even priority at the head, the odd behind."""
    await center.open_run("r", block_size=1)
    order = [5, 3, 1, -1, 4, 2, 0]
    for priority in order:
        await center.put("r", [{"uri": f"{SITE}/p{priority}", "priority": priority}])
    await center.dispatched()
    agent = center.hand_agent()
    await agent.register()
    blocks = await agent.lease(want=7)
    came = [works_of(block)[0].uri.rpartition("/p")[2] for block in blocks]
    assert came == ["-1", "0", "1", "2", "3", "4", "5"]


async def test_a_request_without_priority_takes_its_runs(center: RunningCenter) -> None:
    """D1, D2: the default is the lowest, a run may say another."""
    await fill(center, "low", 1)
    await fill(center, "high", 1, priority=0)
    sizes = {lane["lane"]: lane["requests"] for lane in await lanes(center)}
    assert sizes == {"super": 0, "high": 1, "mid": 0, "low": 1}


async def lanes(center: RunningCenter) -> list[dict[str, object]]:
    items: list[dict[str, object]] = (await center.admin.get("/api/v1/lanes")).json()["items"]
    return items


async def test_a_report_in_parts(center: RunningCenter) -> None:
    """C7: outcomes count when they come; the block ends with the last of them."""
    await fill(center, "r", 10)
    agent = center.hand_agent()
    await agent.register()
    (block,) = await agent.lease()
    ids = [work.id for work in works_of(block)]
    half = [Outcome(one, status=200) for one in ids[:5]]
    part = BlockReport(block.id, block.token, half, final=False)
    assert await agent.report(part) == ["stored"]
    assert await center.ledger("r") == Ledger(accepted=10, leased=5, done=5)
    assert await agent.report(part) == ["duplicate"]
    assert await center.ledger("r") == Ledger(accepted=10, leased=5, done=5)
    assert (await center.admin.get("/requestqueue/r")).json() == {"blocks": []}

    rest = [Outcome(one, status=200) for one in ids[5:]]
    assert await agent.report(BlockReport(block.id, block.token, rest)) == ["stored"]
    assert await center.ledger("r") == Ledger(accepted=10, done=10)


async def test_what_is_given_back_is_there_at_once_without_what_is_done(
    center: RunningCenter,
) -> None:
    """A7, fault 47: a draining agent returns its blocks; no request is done twice."""
    await fill(center, "r", 10)
    first, second = center.hand_agent("a1"), center.hand_agent("a2")
    await first.register()
    await second.register()
    (block,) = await first.lease()
    ids = [work.id for work in works_of(block)]
    done = [Outcome(one, status=200) for one in ids[:4]]
    await first.report(BlockReport(block.id, block.token, done, final=False))
    assert await first.give_back(block) == 1
    assert await first.give_back(block) == 0
    (again,) = await second.lease()
    assert (again.id, again.token) == (block.id, block.token + 1)
    assert again.skip == ids[:4]
    assert [work.id for work in works_of(again)] == ids[4:]
    assert await second.finish(again) == "stored"
    assert await center.ledger("r") == Ledger(accepted=10, done=10)


async def test_a_full_lane_leaves_an_alert_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D3, U12: the lane keeps its bound, the others wait in the backlog until there is room; a
    lane that nothing enters for a while is an alert, one that is only full is none."""
    async with running_center(tmp_path, lanes_low_limit=20) as center:
        await fill(center, "r", 100, block_size=10)
        for _ in range(3):
            await center.services.dispatcher.dispatch()
        assert (await center.admin.get("/api/v1/alerts")).json()["items"] == []
        monkeypatch.setattr(dispatch, "STUCK_SECONDS", 0.2)

        async def told() -> bool:
            await center.services.dispatcher.dispatch()
            return bool((await center.admin.get("/api/v1/alerts")).json()["items"])

        await until(told)
        assert await center.ledger("r") == Ledger(accepted=100, waiting=80, queued=20)
        (alert,) = (await center.admin.get("/api/v1/alerts")).json()["items"]
        assert (alert["kind"], alert["subject"]) == ("lane_full", "r")
        assert alert["detail"].startswith("lane low full 20/20, nothing went in for 0 s")
        agent = center.hand_agent()
        await agent.register()
        done = 0
        while done < 100:
            for block in await agent.lease(want=2, wait=10.0):
                assert (await center.services.bus.lanes.sizes())[Lane.LOW] <= 20
                done += block.size
                await agent.finish(block)
        assert await center.ledger("r") == Ledger(accepted=100, done=100)
