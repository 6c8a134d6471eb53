"""Chained runs (C6): back to the agent that found it, and what happens when it is gone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from skep.testing.doubles.manual_agents import (
    PLACING,
    SITE,
    ManualAgent,
    agents_of,
    joining,
    open_run,
)
from skep.testing.grounds.centers import RunningCenter, running_center, works_of
from skep.testing.polling import until

ALIVE_AFTER = PLACING["center_alive_after"]
#: What noticing and deciding may take beyond it; far less than a lease or a patience.
SOON = 10.0


@pytest.fixture
async def center(tmp_path: Path) -> AsyncIterator[RunningCenter]:
    async with running_center(tmp_path, **PLACING) as running:
        yield running


@pytest.fixture
async def fleet(center: RunningCenter) -> AsyncIterator[Callable[..., Awaitable[ManualAgent]]]:
    async with joining(center) as join:
        yield join


async def find(center: RunningCenter, parents: list[int], each: int = 3) -> None:
    """Requests found on the pages of others."""
    offered = [
        {"uri": f"{SITE}/of/{parent}/{n}", "parent": parent}
        for parent in parents
        for n in range(each)
    ]
    await center.put("r", offered)
    await center.dispatched()


async def roots(center: RunningCenter, hands: dict[str, ManualAgent], count: int) -> dict[int, str]:
    """First requests, all of them fetched: id -> by whom."""
    await center.put("r", [f"{SITE}/first/{n}" for n in range(count)])
    await center.dispatched()
    fetched: dict[int, str] = {}
    for name, hand in hands.items():
        for block in await hand.lease():
            fetched |= dict.fromkeys(await hand.finish(block), name)
    assert len(fetched) == count
    return fetched


async def state_of(center: RunningCenter) -> tuple[str, str]:
    run = (await center.admin.get("/api/v1/runs/r")).json()["run"]
    return run["state"], run["reason"]


async def is_failed(center: RunningCenter) -> bool:
    return (await state_of(center))[0] == "failed"


async def chosen(center: RunningCenter, hands: dict[str, ManualAgent]) -> dict[str, ManualAgent]:
    return {name: hands[name] for name in await agents_of(center, "r")}


async def test_what_is_found_goes_back_to_who_found_it(center: RunningCenter, fleet: Any) -> None:
    """C5, C6: whatever agent m fetched, its children and theirs are m's, three deep."""
    hands = {name: await fleet(name) for name in ("a", "b", "c", "d")}
    assert (await open_run(center, "r", {"strategy": "chained", "n": 3})).status == 200
    mine = await chosen(center, hands)
    fetched = await roots(center, mine, 40)
    assert set(fetched.values()) == set(mine), "first requests go to random agents of the run"
    for _ in range(3):
        await find(center, list(fetched), each=2)
        children: dict[int, str] = {}
        for name, hand in mine.items():
            for block in await hand.lease():
                for work in works_of(block):
                    assert fetched[int(work.uri.split("/")[-2])] == name
                children |= dict.fromkeys(await hand.finish(block), name)
        assert len(children) == 2 * len(fetched)
        fetched = dict(list(children.items())[:20])
    assert await hands[next(iter(hands.keys() - mine.keys()))].lease() == []


async def test_the_run_stops_when_its_agent_is_gone(center: RunningCenter, fleet: Any) -> None:
    """C6, faults 16 and 19: stop is the default; the reason says who and why, at once."""
    hands = {name: await fleet(name) for name in ("a", "b")}
    assert (await open_run(center, "r", {"strategy": "chained", "n": 1})).status == 200
    mine = await chosen(center, hands)
    fetched = await roots(center, mine, 2)
    await find(center, list(fetched))
    (name,) = mine
    await hands[name].die()
    began = time.monotonic()
    await until(lambda: is_failed(center))
    took = time.monotonic() - began
    assert took < ALIVE_AFTER + SOON
    _, reason = await state_of(center)
    assert f"agent {name} is gone" in reason
    assert "6 open requests belong to it" in reason
    other = next(hand for key, hand in hands.items() if key != name)
    assert await other.lease() == []


async def test_a_stopped_run_goes_on_when_its_agent_is_back(
    center: RunningCenter, fleet: Any
) -> None:
    """C6: nothing of it is lost; a person continues it."""
    a = await fleet("a")
    assert (await open_run(center, "r", {"strategy": "chained", "n": 1})).status == 200
    fetched = await roots(center, {"a": a}, 1)
    await find(center, list(fetched))
    await a.die()
    await until(lambda: is_failed(center))
    await a.start()
    assert (await center.admin.post("/api/v1/runs/r/continue")).status == 200
    uris: list[str] = []
    async with asyncio.timeout(15):
        while len(uris) < 3:
            uris += await a.uris(await a.lease(wait=1.0))
    assert sorted(uris) == sorted(f"{SITE}/of/{next(iter(fetched))}/{n}" for n in range(3))


async def test_waiting_for_an_agent_that_comes_back(center: RunningCenter, fleet: Any) -> None:
    """C6, fault 16: wait holds its requests back, others go on, and it carries on."""
    hands = {name: await fleet(name) for name in ("a", "b")}
    asked = {"strategy": "chained", "n": 2, "when_gone": "wait", "patience": 30}
    assert (await open_run(center, "r", asked)).status == 200
    fetched = await roots(center, hands, 20)
    await hands["a"].die()
    await until(lambda: _given_up(center, "a"))
    await find(center, list(fetched), each=1)
    other = await hands["b"].uris(await hands["b"].lease(wait=5.0))
    assert {fetched[int(uri.split("/")[-2])] for uri in other} == {"b"}
    assert (await state_of(center))[0] == "running"
    await hands["a"].start()
    uris: list[str] = []
    async with asyncio.timeout(15):
        while len(uris) < list(fetched.values()).count("a"):
            uris += await hands["a"].uris(await hands["a"].lease(wait=1.0))
    assert {fetched[int(uri.split("/")[-2])] for uri in uris} == {"a"}


async def test_patience_comes_to_an_end(center: RunningCenter, fleet: Any) -> None:
    """Fault 16: wait, then stop: after the detection and the sticky timeout."""
    a = await fleet("a")
    asked = {"strategy": "chained", "n": 1, "when_gone": "wait", "patience": 1.5}
    assert (await open_run(center, "r", asked)).status == 200
    await find(center, list(await roots(center, {"a": a}, 1)))
    await a.die()
    began = time.monotonic()
    await until(lambda: is_failed(center))
    took = time.monotonic() - began
    assert 1.5 < took < ALIVE_AFTER + 1.5 + SOON
    assert "waited 1.5 s for it" in (await state_of(center))[1]


async def test_chains_begin_again_on_another_agent(center: RunningCenter, fleet: Any) -> None:
    """C6, fault 16: restart fetches the first request again elsewhere, then what was open."""
    hands = {name: await fleet(name) for name in ("a", "b")}
    asked = {"strategy": "chained", "n": 1, "when_gone": "restart"}
    assert (await open_run(center, "r", asked)).status == 200
    mine = await chosen(center, hands)
    (name,) = mine
    other = next(key for key in hands if key != name)
    fetched = await roots(center, mine, 1)
    await find(center, list(fetched))
    held = await hands[name].lease(want=1)
    assert held
    await hands[name].die()
    (first,) = await _leased(hands[other], 1)
    assert await hands[other].uris([first]) == [f"{SITE}/first/0"]
    assert await agents_of(center, "r") == [other]
    await asyncio.sleep(0.5)
    assert await hands[other].lease() == [], "what was open waits for the first request"
    await hands[other].finish(first)
    blocks = await _leased(hands[other], 1)
    uris = await hands[other].uris(blocks)
    assert sorted(uris) == [f"{SITE}/of/{next(iter(fetched))}/{n}" for n in range(3)]
    assert (await state_of(center))[0] == "running"
    for block in blocks:
        await hands[other].finish(block)
    ledger = await center.ledger("r")
    assert (ledger.accepted, ledger.done) == (5, 5)


async def test_an_agent_that_was_replaced_and_is_back_can_take_a_slot_again(
    center: RunningCenter, fleet: Any
) -> None:
    """C6: a dies, b replaces it; a comes back and b dies: the chain restarts on a."""
    hands = {"a": await fleet("a")}
    asked = {"strategy": "chained", "n": 1, "when_gone": "restart", "patience": 600}
    assert (await open_run(center, "r", asked)).status == 200
    fetched = await roots(center, hands, 1)
    await find(center, list(fetched))
    hands["b"] = await fleet("b")
    await hands["a"].die()
    (first,) = await _leased(hands["b"], 1)
    assert await agents_of(center, "r") == ["b"]
    await hands["b"].finish(first)
    await hands["a"].start()
    await hands["b"].die()
    (again,) = await _leased(hands["a"], 1)
    assert await hands["a"].uris([again]) == [f"{SITE}/first/0"]
    assert await agents_of(center, "r") == ["a"]
    await hands["a"].finish(again)
    for block in await _leased(hands["a"], 1):
        await hands["a"].finish(block)
    ledger = await center.ledger("r")
    assert (ledger.accepted, ledger.done, ledger.open) == (6, 6, 0)
    assert (await state_of(center))[0] == "running"


async def _leased(hand: ManualAgent, count: int) -> list[Any]:
    blocks: list[Any] = []
    async with asyncio.timeout(20):
        while len(blocks) < count:
            blocks += await hand.lease(wait=1.0)
    return blocks


async def _given_up(center: RunningCenter, agent: str) -> bool:
    return center.services.roster.given_up(agent)


async def test_one_host_stays_in_one_open_block(center: RunningCenter, fleet: Any) -> None:
    """C6 and politeness: two agents of a chain never have one paced host at once."""
    hands = {name: await fleet(name) for name in ("a", "b")}
    rule = {"rate": 50.0}
    assert (await center.admin.put("/api/v1/sites/127.0.0.1", rule)).status == 200
    assert (await open_run(center, "r", {"strategy": "chained", "n": 2})).status == 200
    await center.put("r", [f"{SITE}/{n}" for n in range(40)])
    done: set[int] = set()
    async with asyncio.timeout(30):
        while len(done) < 40:
            await center.dispatched()
            found = {name: await hand.lease() for name, hand in hands.items()}
            assert sum(len(blocks) for blocks in found.values()) <= 1
            for name, blocks in found.items():
                for block in blocks:
                    done |= set(await hands[name].finish(block))
            await asyncio.sleep(0.05)
