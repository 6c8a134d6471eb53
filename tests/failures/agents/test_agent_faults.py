"""What happens to an agent's work when its center, its disk or itself goes away."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import logging
import re
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from random import Random

import msgspec
import pytest

from skep.agent import app, heartbeat
from skep.agent.app import Agent
from skep.agent.work import reporting
from skep.errors import DiskFull, Malformed, SkepError, StoreDown
from skep.runtime.backoff import Backoff
from skep.runtime.clock import SystemClock
from skep.settings import AgentSettings
from skep.testing.doubles.center import CenterDouble, center_double
from skep.testing.doubles.toy_agent import (
    TOY_RUN,
    Start,
    ToyKind,
    build_agent,
    fill,
    starter,
    toy_works,
)
from skep.testing.polling import until
from skep.wire.client import CenterClient
from skep.wire.client import center as client_module
from skep.wire.messages import Command, Report

FAST = AgentSettings(concurrency=8, report_every=0.05, lease_wait=0.2, drain_seconds=0.3)


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same rules in a tenth of the time."""
    monkeypatch.setattr(reporting, "RETRY", Backoff(first=0.02, cap=0.1))
    monkeypatch.setattr(reporting, "RESEND", Backoff(first=0.05, cap=0.2))
    monkeypatch.setattr(heartbeat, "HEARTBEAT_CAP", 0.2)
    monkeypatch.setattr(app, "FLUSH_SECONDS", 0.5)


@pytest.fixture
async def center() -> AsyncIterator[CenterDouble]:
    async with center_double() as double:
        yield double


@pytest.fixture
def start(center: CenterDouble, tmp_path: Path) -> Start:
    return starter(center, tmp_path, FAST)


def _holds(agent: Agent, blocks: int) -> bool:
    return agent.holding.blocks == blocks


async def test_results_outlive_an_outage_on_disk_and_arrive_oldest_first(
    center: CenterDouble, start: Start
) -> None:
    """A7, fault 12: lost 0 until the outbox is full."""
    fill(center, blocks=3)
    toy = ToyKind(size=50)
    toy.held = None
    async with start(toy) as agent:
        await until(lambda: agent.holding.blocks == 3)
        await center.down()
        toy.let_go()
        await until(lambda: agent.outbox.results == 30)
        assert agent.holding.blocks == 0
        assert center.stored == []
        await center.up()
        await center.until(lambda: center.open_requests == 0)
        await until(lambda: len(agent.outbox) == 0)
        assert agent.vitals().dropped == 0
    assert center.stored == sorted(center.stored)
    assert all(block.ended for block in center.blocks.values())
    bodies = {one: body.rstrip(b".") for (_, one), body in center.bodies.items()}
    assert bodies == {one: f"toy://x/{one}".encode() for one in range(30)}


@pytest.mark.parametrize(("tries", "stored"), [(1, False), (6, True)])
async def test_results_are_tried_as_often_as_the_setting_says(
    center: CenterDouble, start: Start, tries: int, stored: bool
) -> None:
    """E11, A7: `agent.report_tries` tries of a report, then the outbox."""
    fill(center, blocks=1)
    center.fail("block", StoreDown("later"), times=5)
    chosen = msgspec.structs.replace(FAST, report_tries=tries)
    toy = ToyKind()
    toy.held = None
    async with start(toy, chosen) as agent:
        await until(lambda: agent.holding.blocks == 1)
        seen: list[int] = []
        spill = agent.outbox.put

        def noting(report: Report) -> object:
            seen.append(len(report.blocks))
            return spill(report)

        agent.outbox.put = noting  # type: ignore[method-assign,assignment]
        toy.let_go()
        await center.until(lambda: center.open_requests == 0)
    assert (not seen) is stored


async def test_leases_of_results_on_disk_are_renewed(center: CenterDouble, start: Start) -> None:
    """Otherwise the work would be done a second time while its results wait."""
    fill(center, blocks=1)
    center.silence("block")
    center.fail("block", StoreDown("later"), times=1000)
    async with start(ToyKind()) as agent:
        await until(lambda: len(agent.outbox) == 1)
        center.beats.clear()
        await center.until(lambda: len(center.beats) > 2)
        assert [held.block for held in center.beats[-1].holding] == [1]
        assert center.beats[-1].vitals.outbox == 10


async def test_the_outbox_is_sent_by_the_next_life_of_the_agent(
    center: CenterDouble, start: Start
) -> None:
    """Fault 12: the agent is stopped in the middle of the outage."""
    fill(center, blocks=2)
    toy = ToyKind()
    toy.held = None
    async with start(toy) as agent:
        await until(lambda: agent.holding.blocks == 2 and agent.holding.active == 8)
        await center.down()
        toy.let_go()
        await until(lambda: agent.outbox.results == 20)
    assert center.stored == []
    await center.up()
    async with start(ToyKind()) as agent:
        await center.until(lambda: center.open_requests == 0)
        await until(lambda: len(agent.outbox) == 0)
    assert sorted(center.stored) == list(range(20))


async def test_a_drain_in_an_outage_leaves_everything_on_disk_in_time(
    center: CenterDouble, start: Start
) -> None:
    """Fault 47 with a center that takes calls and never answers."""
    fill(center, blocks=1)
    center.silence("block", "giveback")
    loop = asyncio.get_running_loop()
    async with start(ToyKind()) as agent:
        await until(lambda: agent.holding.finished == 10 and agent.holding.active == 0)
        began = loop.time()
    assert loop.time() - began < 10
    assert agent.outbox.results == 10


async def test_a_full_outbox_drops_the_oldest_and_their_work_is_done_again(
    center: CenterDouble, start: Start
) -> None:
    """Fault 12: what is dropped is counted and named, and the block goes to another agent,
    because its lease is no longer renewed."""
    fill(center, blocks=3)
    toy = ToyKind(size=200)
    toy.held = None
    small = AgentSettings(concurrency=30, report_every=9, lease_wait=0.2, outbox_bytes=5000)
    async with start(toy, small) as agent:
        await until(lambda: agent.holding.active == 30)
        await center.down()
        for block in range(3):  # one after the other, each into a file of its own
            for one in range(block * 10, block * 10 + 10):
                toy.end(one)
            await until(partial(_holds, agent, 2 - block))
        assert agent.vitals().dropped == 10
        await center.up()
        await center.until(lambda: len(center.stored) == 20)
        await center.until(lambda: center.beats[-1].vitals.dropped == 10)
        await center.until(lambda: center.beats[-1].holding == [])
        toy.let_go()
        center.ready.append(center.blocks[1])  # what a real center does when the lease is over
        await center.until(lambda: center.open_requests == 0)
    assert sorted(center.stored) == list(range(30))


async def test_beats_go_on_while_a_report_hangs(center: CenterDouble, start: Start) -> None:
    """A7: heartbeats are never delayed by results."""
    fill(center, blocks=4)
    center.silence("block")
    async with start(ToyKind(size=1000)) as agent:
        await until(lambda: agent.holding.finished == 40)
        before = len(center.beats)
        await center.until(lambda: len(center.beats) >= before + 10)
        assert center.reports == []
        center.speak()
        await center.until(lambda: center.open_requests == 0)


async def test_heartbeats_are_retried_without_limit_and_logged_once(
    center: CenterDouble, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """Faults 9, 11, 14: no queue of old beats, one log line for each outage."""
    with caplog.at_level(logging.INFO, logger="skep"):
        async with start(ToyKind()):
            await center.until(lambda: len(center.beats) > 1)
            for _ in range(2):
                await center.down()
                await asyncio.sleep(0.5)
                center.beats.clear()
                await center.up()
                await center.until(lambda: len(center.beats) >= 1, seconds=5)
                assert len(center.beats) == 1
                await center.until(lambda: len(center.beats) >= 3, seconds=5)
    said = [record.message for record in caplog.records]
    assert sum("heartbeat failed" in line for line in said) == 2
    assert sum("a center answers again" in line for line in said) == 2
    assert len(said) < 12


async def test_commands_arrive_again_after_an_outage(center: CenterDouble, start: Start) -> None:
    """A7: subscriptions are retried without limit."""
    async with start(ToyKind()) as agent:
        await center.until(lambda: center.listeners == 1)
        await center.down()
        await until(lambda: center.listeners == 0)
        await center.up()
        await center.until(lambda: center.listeners == 1)
        await center.push(Command("exit"))
        async with asyncio.timeout(5):
            await agent._ended.wait()


async def silent_websocket(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, calls: list[float]
) -> None:
    """Shakes hands, and then is as dead as a line through a router that forgot it."""
    calls.append(asyncio.get_running_loop().time())
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    key = re.search(r"Sec-WebSocket-Key: (\S+)", head)
    assert key is not None
    magic = f"{key[1]}258EAFA5-E914-47DA-95CA-C5AB0DC85B11".encode()
    accept = base64.b64encode(hashlib.sha1(magic).digest()).decode()
    writer.write(
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: " + accept.encode() + b"\r\n\r\n"
    )
    await reader.read()
    writer.close()


async def test_a_half_open_command_connection_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault 28: by pings of our own, after one and a half intervals (24 s as shipped)."""
    assert client_module.PING_SECONDS * 1.5 <= 25
    monkeypatch.setattr(client_module, "PING_SECONDS", 0.2)
    monkeypatch.setattr(client_module, "RECONNECT", Backoff(first=0.01))
    calls: list[float] = []
    server = await asyncio.start_server(partial(silent_websocket, calls=calls), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with CenterClient([f"http://127.0.0.1:{port}"], "t", SystemClock(), Random(1)) as client:
        listening = asyncio.ensure_future(anext(client.commands("a")))
        await until(lambda: len(calls) >= 3)
        listening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await listening
    server.close()
    assert calls[1] - calls[0] < 5.0


@pytest.mark.parametrize("error", [DiskFull("no space"), StoreDown("gone")])
async def test_a_center_that_cannot_keep_results_gets_them_later(
    center: CenterDouble, start: Start, error: SkepError
) -> None:
    """Faults 25, 26: 507 and 503 lose nothing."""
    fill(center, blocks=5)
    center.fail("block", error, times=12)
    async with start(ToyKind()):
        await center.until(lambda: center.open_requests == 0)
    assert sorted(center.stored) == list(range(50))


async def test_an_answer_that_is_lost_stores_nothing_twice(
    center: CenterDouble, start: Start
) -> None:
    """Fault 3: the report was kept, its answer was not heard, and it is sent again."""
    fill(center, blocks=3)
    toy = ToyKind()
    toy.held = {9}
    center.lose_answer("block")
    center.lose_answer("block")
    async with start(toy) as agent:
        await until(lambda: agent.holding.blocks == 1)
        toy.let_go()
        await center.until(lambda: center.open_requests == 0)
        await until(lambda: agent.holding.blocks == 0)
        assert agent.holding.lost == 0
    assert sorted(center.stored) == list(range(30))


async def test_a_report_that_makes_no_sense_does_not_block_the_others(
    center: CenterDouble, start: Start
) -> None:
    fill(center, blocks=1)
    center.fail("block", Malformed("what is this"), times=1)
    async with start(ToyKind()) as agent:
        await until(lambda: agent.reporter.refused == 10)
        assert agent.vitals().dropped == 10
        center.add("r", toy_works(100, 5), TOY_RUN)
        await center.until(lambda: len(center.stored) == 5)


async def test_an_abort_ends_at_once(center: CenterDouble, tmp_path: Path) -> None:
    """The second signal: running downloads are not waited for."""
    fill(center, blocks=1)
    toy = ToyKind()
    toy.held = None
    patient = AgentSettings(concurrency=8, drain_seconds=60.0)
    async with CenterClient([center.url], center.token, SystemClock(), Random(1)) as client:
        agent = build_agent(client, tmp_path, patient, {"toy": toy})
        running = asyncio.ensure_future(agent.run())
        await until(lambda: agent.holding.active == 8)
        agent.stop()
        await until(lambda: agent.holding.closing)
        agent.abort()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert toy.closed == 1
