"""The way of requests through a real center, over real HTTP, with an agent played by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from random import Random

import msgspec
import pytest

from skep.archive.frames import Exchange, FrameMaker
from skep.model.agent import Vitals
from skep.model.block import BlockReport, Leased
from skep.model.lane import Lane
from skep.model.ledger import Ledger
from skep.model.request import Outcome
from skep.runtime.clock import SystemClock
from skep.testing.centers import RunningCenter, running_center, works_of
from skep.wire.messages import Command, LeaseAsk

#: An address of one's own has no pace: these tests are about lanes and leases.
SITE = "http://127.0.0.1"


@pytest.fixture
async def center(tmp_path: Path) -> AsyncIterator[RunningCenter]:
    """Retries come soon, the rest is as shipped."""
    async with running_center(tmp_path, lanes_retry_first=0.01, lanes_retry_cap=0.02) as running:
        yield running


async def until(condition: Callable[[], Awaitable[bool]], seconds: float = 20.0) -> None:
    """For what the center's own loops do, which nobody announces."""
    async with asyncio.timeout(seconds):
        while not await condition():  # noqa: ASYNC110  (said above)
            await asyncio.sleep(0.01)


def urls(count: int, word: str = "page") -> list[str]:
    return [f"{SITE}/{word}/{n}" for n in range(count)]


async def fill(center: RunningCenter, run: str, count: int, **settings: object) -> None:
    """A run with waiting requests, all of them in lanes as far as there is room."""
    await center.open_run(run, **settings)
    assert (await center.put(run, urls(count)))["new"] == count
    await center.dispatched()


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
    reply = await agent.beat(vitals=Vitals(cpu=0.5, active=3))
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
    """C8: finished blocks stay until their run says that it has them."""
    await fill(center, "r", 30, block_size=10)
    agent = center.hand_agent()
    await agent.register()
    blocks = await agent.lease(want=3)
    for block in blocks:
        await agent.finish(block)
    for _ in range(2):
        found = (await center.admin.get("/requestqueue/r?limit=2")).json()["blocks"]
        assert [block["id"] for block in found] == [blocks[0].id, blocks[1].id]
    collect = {"blocks": [blocks[0].id, blocks[1].id, 999]}
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
    """A7, fault 47: a draining agent returns its blocks; nobody does a request twice."""
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


async def test_a_beat_tells_what_was_lost(center: RunningCenter) -> None:
    """Fault 30: an agent learns which blocks are no longer its own, and keeps the others."""
    await fill(center, "r", 20, block_size=10)
    agent, other = center.hand_agent("a1"), center.hand_agent("a2")
    await agent.register()
    await other.register()
    mine, lost = await agent.lease(want=2)
    await agent.give_back(lost)
    await other.lease()
    reply = await agent.beat()
    assert reply.lost == [lost.id]
    agent.held = {77: Leased(77, 1, "r", 1, b""), mine.id: mine}
    assert (await agent.beat()).lost == [77]


async def test_a_beat_can_bring_blocks(center: RunningCenter) -> None:
    """C8: the answer to a heartbeat carries blocks, if asked."""
    await fill(center, "r", 30, block_size=10)
    agent = center.hand_agent()
    await agent.register()
    assert (await agent.beat()).lease is None
    reply = await agent.beat(want=2)
    assert [block.size for block in reply.lease.blocks] == [10, 10]
    assert set(reply.lease.runs) == {"r"}
    assert (await center.ledger("r")).leased == 20


async def test_a_disabled_agent_keeps_its_beat_and_gets_nothing(center: RunningCenter) -> None:
    """C3: switched off by a person; what it holds it may finish."""
    await fill(center, "r", 20, block_size=10)
    agent = center.hand_agent()
    await agent.register()
    (block,) = await agent.lease()
    line = (await center.admin.post("/api/v1/agents/a1/disable")).json()
    assert line["agent"]["enabled"] is False
    answer = await agent.call("lease", LeaseAsk("a1"))
    assert (answer.status, answer.problem().code) == (403, "forbidden")
    reply = await agent.beat(want=1)
    assert (reply.known, reply.lease, reply.lost) == (True, None, [])
    assert (await center.admin.get("/api/v1/agents")).json()["items"][0]["alive"] is True
    assert await agent.finish(block) == "stored"
    await agent.register()
    assert (await agent.beat(want=1)).lease is None, "a new registration does not switch it on"
    await center.admin.post("/api/v1/agents/a1/enable")
    assert len(await agent.lease()) == 1


async def test_an_agent_that_is_disabled_while_it_waits_gets_nothing(
    center: RunningCenter,
) -> None:
    """C3: the long poll looks again before it hands out."""
    agent = center.hand_agent()
    await agent.register()
    waiting = asyncio.create_task(agent.lease(wait=20.0))
    await until_waiting(center)
    await center.admin.post("/api/v1/agents/a1/disable")
    await fill(center, "r", 1)
    assert await waiting == []
    assert (await center.ledger("r")).queued == 1


async def until_waiting(center: RunningCenter) -> None:
    """Somebody waits for work."""

    async def there() -> bool:
        return center.services.work.waiting > 0

    await until(there)


async def test_an_old_beat_is_no_life_and_renews_nothing(center: RunningCenter) -> None:
    """C10: what waited is judged by its age; a registration is always processed."""
    await fill(center, "r", 1)
    agent = center.hand_agent()
    await agent.register(age=3600.0)
    (block,) = await agent.lease()
    seen, until_ = await seen_at(center), await lease_until(center, block)
    reply = await agent.beat(age=11.0, want=1)
    assert (reply.known, reply.lease) == (True, None)
    assert (await seen_at(center), await lease_until(center, block)) == (seen, until_)
    await agent.beat(age=10.9)
    assert await seen_at(center) > seen
    assert await lease_until(center, block) > until_
    before = await seen_at(center)
    await agent.register([block.held], age=86_400.0)
    assert await seen_at(center) > before


async def seen_at(center: RunningCenter) -> float:
    items = (await center.admin.get("/api/v1/agents")).json()["items"]
    return float(items[0]["agent"]["seen_at"])


async def lease_until(center: RunningCenter, block: Leased) -> float:
    found = (await center.admin.get(f"/api/v1/blocks/{block.id}")).json()
    return float(found["block"]["lease_until"])


async def test_heartbeats_are_kept_for_charts(center: RunningCenter) -> None:
    """C2: the history of an agent, oldest first."""
    agent = center.hand_agent()
    await agent.register()
    for rate in (1.0, 2.0, 3.0):
        await agent.beat(vitals=Vitals(rate=rate, free_memory=2**40))
    found = (await center.admin.get("/api/v1/agents/a1/vitals?seconds=60")).json()["items"]
    assert [vitals["rate"] for _, vitals in found] == [1.0, 2.0, 3.0]
    assert [at for at, _ in found] == sorted(at for at, _ in found)


async def test_a_long_poll_returns_with_the_work(center: RunningCenter) -> None:
    """C8: at once when work arrives, long before its time is over."""
    await center.open_run("r")
    agent = center.hand_agent()
    await agent.register()
    waiting = asyncio.create_task(agent.lease(wait=30.0))
    await until_waiting(center)
    await center.put("r", urls(5))
    async with asyncio.timeout(15.0):
        (block,) = await waiting
    assert block.size == 5


async def test_a_long_poll_returns_with_nothing_when_its_time_is_over(
    center: RunningCenter,
) -> None:
    agent = center.hand_agent()
    await agent.register()
    clock = asyncio.get_running_loop().time
    begun = clock()
    assert await agent.lease(wait=0.3) == []
    assert clock() - begun >= 0.29


async def test_a_caller_that_hung_up_takes_no_block(center: RunningCenter) -> None:
    """Fault 22: blocks do not rest in the hands of a connection that is gone."""
    await center.open_run("r")
    agent = center.hand_agent()
    await agent.register()
    waiting = asyncio.create_task(agent.lease(wait=30.0))
    await until_waiting(center)
    server = center.local.server._server
    assert server is not None
    state = server.server_state
    connected = set(state.connections)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting

    async def heard_the_end() -> bool:
        return not connected <= set(state.connections)

    async def answered_all() -> bool:
        return not state.tasks

    await until(heard_the_end)
    await center.put("r", urls(1))
    await center.dispatched()
    await until(answered_all)
    assert (await center.ledger("r")).queued == 1
    assert len(await agent.lease()) == 1


async def test_commands_arrive_over_the_socket(center: RunningCenter) -> None:
    """A2, C8: pushed at once; an order is told again with each beat until it is obeyed."""
    agent = center.hand_agent()
    await agent.register()
    async with center.agent.socket("a1") as socket:
        for verb in ("wake", "exit"):
            await center.admin.post(f"/api/v1/agents/a1/{verb}")
            data = await asyncio.wait_for(socket.receive_bytes(), 10)
            assert msgspec.msgpack.decode(data, type=Command).name == verb
        (order,) = (await agent.beat()).commands
        assert order.name == "exit"
        assert (await agent.beat(obeyed=order.order)).commands == []


async def test_commands_rest_until_the_next_beat(center: RunningCenter) -> None:
    """A2: without a socket they are told in order; `wake` once, an order until obeyed."""
    agent = center.hand_agent()
    await agent.register()
    await center.admin.post("/api/v1/agents/a1/wake")
    await center.admin.post("/api/v1/agents/a1/exit")
    assert [command.name for command in (await agent.beat()).commands] == ["wake", "exit"]
    (order,) = (await agent.beat()).commands
    assert order.name == "exit"
    assert (await agent.beat(obeyed=order.order)).commands == []


async def test_a_socket_that_was_closed_is_forgotten(center: RunningCenter) -> None:
    """Fault 28: a command after it rests, and reaches the agent with its beat."""
    agent = center.hand_agent()
    await agent.register()
    async with center.agent.socket("a1"):
        assert center.services.hub.connected == ["a1"]

    async def forgotten() -> bool:
        return center.services.hub.connected == []

    await until(forgotten)
    assert (await center.admin.post("/api/v1/agents/a1/wake")).status == 200
    assert [command.name for command in (await agent.beat()).commands] == ["wake"]


async def test_a_second_socket_takes_the_place_of_the_first(center: RunningCenter) -> None:
    """Fault 66: one agent, one socket; the end of the old one does not unhook the new."""
    agent = center.hand_agent()
    await agent.register()
    old = await center.agent.socket("a1")
    async with center.agent.socket("a1") as new:
        await old.close()
        await center.admin.post("/api/v1/agents/a1/wake")
        data = await asyncio.wait_for(new.receive_bytes(), 10)
        assert msgspec.msgpack.decode(data, type=Command).name == "wake"
        assert center.services.hub.connected == ["a1"]


async def test_an_agent_that_comes_back_empty_handed_frees_its_blocks(
    center: RunningCenter,
) -> None:
    """Fault 22: after a kill nobody waits for a lease to run out."""
    await fill(center, "r", 20, block_size=10)
    agent, other = center.hand_agent("a1"), center.hand_agent("a2")
    await agent.register()
    await other.register()
    kept, gone = await agent.lease(want=2)
    await agent.register([kept.held])
    assert (await center.ledger("r")).leased == 10
    (found,) = await other.lease(want=2)
    assert (found.id, found.token) == (gone.id, gone.token + 1)
    await agent.register()
    (found,) = await other.lease(want=2)
    assert found.id == kept.id
    assert await agent.finish(kept) == "stale"


async def test_a_full_lane_leaves_an_alert_and_loses_nothing(tmp_path: Path) -> None:
    """D3: the lane keeps its bound, the others wait in the backlog until there is room."""
    async with running_center(tmp_path, lanes_low_limit=20) as center:
        await fill(center, "r", 100, block_size=10)

        async def told() -> bool:
            await center.services.dispatcher.dispatch()
            return bool((await center.admin.get("/api/v1/alerts")).json()["items"])

        await until(told)
        assert await center.ledger("r") == Ledger(accepted=100, waiting=80, queued=20)
        (alert,) = (await center.admin.get("/api/v1/alerts")).json()["items"]
        assert (alert["kind"], alert["subject"]) == ("lane_full", "r")
        assert alert["detail"].startswith("lane low full 20/20")
        agent = center.hand_agent()
        await agent.register()
        done = 0
        while done < 100:
            for block in await agent.lease(want=2, wait=10.0):
                assert (await center.services.bus.lanes.sizes())[Lane.LOW] <= 20
                done += block.size
                await agent.finish(block)
        assert await center.ledger("r") == Ledger(accepted=100, done=100)


async def test_failed_requests_come_back_up_to_the_limit(center: RunningCenter) -> None:
    """D5: tried again after a back-off, then dead, with every attempt in the history."""
    await fill(center, "r", 1, retries=2)
    agent = center.hand_agent()
    await agent.register()
    for attempt in range(3):
        (block,) = await agent.lease(wait=20.0)
        (work,) = works_of(block)
        assert await agent.finish(block, failure="network", status=0) == "stored"
        ledger = await center.ledger("r")
        assert ledger.accepted == 1
        assert ledger.dead == (attempt == 2)
    detail = (await center.admin.get(f"/api/v1/requests/{work.id}")).json()
    assert detail["request"]["state"] == "dead"
    assert detail["request"]["failures"] == 3
    assert [attempt["failure"] for attempt in detail["attempts"]] == ["network"] * 3
    assert (await center.admin.get("/requestqueue/r")).json()["blocks"][-1]["requests"][0][
        "state"
    ] == "dead"


async def test_a_server_that_asks_for_patience_gets_it(center: RunningCenter) -> None:
    """D5, fault 35: Retry-After wins over a shorter back-off."""
    await fill(center, "r", 1, retries=5)
    agent = center.hand_agent()
    await agent.register()
    (block,) = await agent.lease()
    now = center.services.clock.now()
    outcome = Outcome(1, "status", 429, retry_after=3600.0)
    await agent.report(BlockReport(block.id, block.token, [outcome]))
    request = (await center.admin.get("/api/v1/requests/1")).json()["request"]
    assert request["state"] == "delayed"
    assert now + 3599 < request["not_before"] < now + 3700
    assert await center.ledger("r") == Ledger(accepted=1, delayed=1)


@pytest.mark.parametrize(("failure", "status"), [("status", 404), ("limit", 200)])
async def test_what_would_only_fail_again_is_dead_at_once(
    center: RunningCenter, failure: str, status: int
) -> None:
    """D5: retries are for failures that may pass."""
    await fill(center, "r", 1, retries=5)
    agent = center.hand_agent()
    await agent.register()
    (block,) = await agent.lease()
    await agent.finish(block, failure, status)
    assert await center.ledger("r") == Ledger(accepted=1, dead=1)


async def test_requests_that_nobody_wants_any_more_are_counted(center: RunningCenter) -> None:
    """Fault 8: accepted = done + expired; none of the expired was handed out."""
    await center.open_run("r")
    await center.admin.post("/api/v1/runs/r/pause")
    mortal = [{"uri": url, "expires_in": 0.05} for url in urls(5, "mortal")]
    await center.put("r", [*urls(5), *mortal])

    async def expired() -> bool:
        return (await center.ledger("r")).expired == 5

    await until(expired)
    await center.admin.post("/api/v1/runs/r/continue")
    agent = center.hand_agent()
    await agent.register()
    (block,) = await agent.lease(wait=20.0)
    assert [work.uri for work in works_of(block)] == urls(5)
    await agent.finish(block)
    assert await center.ledger("r") == Ledger(accepted=10, done=5, expired=5)


async def test_a_paused_run_starts_nothing_and_goes_on_at_once(center: RunningCenter) -> None:
    """R2: its blocks leave the lanes and are back when it continues."""
    await fill(center, "r", 20, block_size=10)
    agent = center.hand_agent()
    await agent.register()
    (held,) = await agent.lease()
    view = (await center.admin.post("/api/v1/runs/r/pause")).json()
    assert (view["run"]["state"], view["unaccounted"]) == ("paused", 0)
    assert await agent.lease(want=5) == []
    await center.put("r", urls(5, "late"))
    assert await agent.finish(held) == "stored", "what runs may end"
    assert await center.ledger("r") == Ledger(accepted=25, waiting=5, queued=10, done=10)
    await center.admin.post("/api/v1/runs/r/continue")
    taken = await agent.lease(want=5)
    await center.dispatched()
    taken += await agent.lease(want=5)
    assert sorted(block.size for block in taken) == [5, 10]
    for block in taken:
        await agent.finish(block)
    assert await center.ledger("r") == Ledger(accepted=25, done=25)


async def test_a_cancelled_run_ends_everything_but_what_is_in_hands(center: RunningCenter) -> None:
    """R2: an outcome that comes after the cancelling counts; a failure is not retried."""
    await fill(center, "r", 30, block_size=10, retries=5)
    agent = center.hand_agent()
    await agent.register()
    good, bad = await agent.lease(want=2)
    view = (await center.admin.post("/api/v1/runs/r/cancel")).json()
    assert view["ledger"]["cancelled"] == 10
    assert await center.ledger("r") == Ledger(accepted=30, leased=20, cancelled=10)
    assert await agent.lease() == []
    await agent.finish(good)
    await agent.finish(bad, failure="network", status=0)
    assert await center.ledger("r") == Ledger(accepted=30, done=10, cancelled=20)
    answer = await center.admin.post("/api/v1/runs/r/continue")
    assert (answer.status, answer.problem().code) == (409, "conflict")


async def test_a_finished_run_takes_no_more_and_can_be_opened_again(center: RunningCenter) -> None:
    """R2: finish, then continue."""
    await fill(center, "r", 1)
    agent = center.hand_agent()
    await agent.register()
    await agent.finish((await agent.lease())[0])
    assert (await center.admin.post("/api/v1/runs/r/finish")).json()["run"]["state"] == "finished"
    assert (await center.admin.post("/requestqueue/r", urls(1, "late"))).status == 409
    answer = await center.admin.post("/api/v1/runs/r/pause")
    assert answer.problem().code == "conflict"
    await center.admin.post("/api/v1/runs/r/continue")
    assert await center.put("r", urls(1, "late")) == {"new": 1, "known": 0}


async def test_dead_requests_can_be_sent_again(center: RunningCenter) -> None:
    """D5: by hand, with their failures forgiven and their history kept."""
    await fill(center, "r", 4)
    agent = center.hand_agent()
    await agent.register()
    (block,) = await agent.lease()
    await agent.finish(block, failure="timeout", status=0)
    assert await center.ledger("r") == Ledger(accepted=4, dead=4)
    assert (await center.admin.post("/api/v1/runs/r/revive")).json() == {"requests": 4}
    assert (await center.admin.post("/api/v1/runs/r/revive")).json() == {"requests": 0}
    (block,) = await agent.lease(wait=20.0)
    await agent.finish(block)
    assert await center.ledger("r") == Ledger(accepted=4, done=4)
    detail = (await center.admin.get("/api/v1/requests/1")).json()
    assert [attempt["failure"] for attempt in detail["attempts"]] == ["timeout", ""]


async def test_opening_a_run_twice_changes_nothing(center: RunningCenter) -> None:
    """Fault 2: the same call again gives the run that is there."""
    await center.open_run("r", retries=3)
    await center.put("r", urls(2))
    answer = await center.admin.put("/api/v1/runs/r", {"settings": {"retries": 9}})
    view = answer.json()
    assert view["run"]["settings"]["retries"] == 3
    assert view["ledger"]["accepted"] == 2


async def test_runs_are_listed_newest_first_in_pages(center: RunningCenter) -> None:
    for n in range(5):
        await center.open_run(f"r{n}")
    page = (await center.admin.get("/api/v1/runs?limit=3")).json()
    assert [run["id"] for run in page["items"]] == ["r4", "r3", "r2"]
    page = (await center.admin.get(f"/api/v1/runs?limit=3&before={page['next']}")).json()
    assert [run["id"] for run in page["items"]] == ["r1", "r0"]
    assert page["next"] is None


async def test_a_block_shows_its_history_in_the_founders_numbers(center: RunningCenter) -> None:
    """C7: ready 1, using 2, success 4, failed 8, retry 16, each with a detail text."""
    await fill(center, "r", 2)
    agent = center.hand_agent()
    await agent.register()
    (block,) = await agent.lease()
    assert (await center.admin.get("/api/v1/requests/1")).json()["request"]["state"] == "leased"
    await agent.give_back(block)
    assert (await center.admin.get("/api/v1/requests/1")).json()["request"]["state"] == "queued"
    (block,) = await agent.lease()
    await agent.finish(block)
    found = (await center.admin.get(f"/api/v1/blocks/{block.id}")).json()
    assert [change["state"] for change in found["history"]] == [1, 2, 16, 2, 4]
    assert all(change["detail"] for change in found["history"])
    assert (found["block"]["state"], found["block"]["open"], found["block"]["token"]) == (4, 0, 2)


def warc_frames(uri: str, body: bytes) -> bytes:
    headers = [("Content-Type", "text/html")]
    exchange = Exchange(uri, status=200, reason="OK", response_headers=headers, body=body)
    return FrameMaker(SystemClock(), Random(1)).exchange_frames(exchange)


async def test_archived_bytes_leave_as_an_attachment(center: RunningCenter) -> None:
    """D8, fault 53: hostile content is never rendered, and comes back byte for byte."""
    await fill(center, "r", 1)
    agent = center.hand_agent()
    await agent.register()
    (block,) = await agent.lease()
    body = b"<script>alert(1)</script>" * 100
    frames = warc_frames(works_of(block)[0].uri, body)
    outcome = Outcome(1, status=200, received=len(body), length=len(frames))
    report = BlockReport(block.id, block.token, [outcome], frames=frames)
    assert await agent.report(report) == ["stored"]
    for what, kind in (("body", "application/octet-stream"), ("record", "application/zstd")):
        answer = await center.admin.get(f"/api/v1/requests/1/{what}")
        assert answer.status == 200
        assert answer.headers["Content-Type"] == kind
        assert answer.headers["Content-Disposition"].startswith("attachment;")
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        assert answer.content == (body if what == "body" else frames)


async def test_the_ledger_over_all_is_a_line(center: RunningCenter) -> None:
    """R3: the equation, for one run, over all, and counted row by row."""
    await fill(center, "one", 3)
    await fill(center, "two", 4)
    for query, count in (("", 7), ("?run=one", 3), ("?run=two&audit=true", 4), ("?audit=true", 7)):
        found = (await center.admin.get(f"/api/v1/ledger{query}")).json()
        assert (found["total"], found["unaccounted"]) == (count, 0)
        assert found["line"].startswith(f"{count} accepted = ")
    assert await center.metric("skep_ledger_unaccounted") == 0
    assert await center.metric("skep_requests_accepted_total") == 7


async def test_health_says_what_it_checked(center: RunningCenter) -> None:
    ready = (await center.anyone.get("/readyz?verbose")).json()
    assert [check["name"] for check in ready["checks"] if check["ok"]] == [
        "store",
        "bus",
        "archive",
        "disk",
    ]
    assert (await center.anyone.get("/healthz")).json()["status"] == "ok"
    version = (await center.anyone.get("/version")).json()
    assert (version["protocol"], version["oldest_protocol"]) == (1, 1)
