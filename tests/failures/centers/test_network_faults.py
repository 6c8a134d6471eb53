"""A network that loses, delays and cuts, between agents, clients and a real center."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random

import pytest

from skep.model.fleet.agent import Registration
from skep.runtime.clock import SystemClock
from skep.testing.faultproxy import TO_CALLER, TO_SERVER, FaultProxy
from skep.testing.fleet import Fleet, running_agents, tell
from skep.wire.client import CenterClient
from skep.wire.client import center as wire
from skep.wire.messages import Command, Register

FEW_AT_ONCE = {"SKEP_AGENT_CONCURRENCY": "16"}
BEAT = 0.3
REPORTS, LEASES = b"POST /node/block", b"POST /node/lease"


@asynccontextmanager
async def behind_proxy(folder: Path, **more: float) -> AsyncIterator[tuple[Fleet, FaultProxy]]:
    async with AsyncExitStack() as stack:
        fleet = await stack.enter_async_context(Fleet(folder, **more))  # type: ignore[arg-type]
        yield fleet, await stack.enter_async_context(FaultProxy(fleet.center.port))


async def test_a_submit_whose_answer_is_lost_is_accepted_once(tmp_path: Path) -> None:
    """Fault 3: RST after the request, before its answer; and RST in the middle of it."""
    rounds = 10
    async with behind_proxy(tmp_path) as (fleet, proxy):
        client = fleet.new_client([proxy.url])
        for _ in range(rounds):
            proxy.cut(TO_CALLER, when=b"POST /requestqueue")
            await client.offer(fleet.urls(20))
            proxy.cut(TO_SERVER, after=400, when=b"POST /requestqueue")
            await client.offer(fleet.urls(20))
        await client.api.close()
        await fleet.agent("a", FEW_AT_ONCE)
        await fleet.until_all_ended()
        balance = await fleet.check()
    tell(
        "3",
        cut=proxy.struck,
        retries=client.retries,
        accepted=balance.ledger.accepted,
        **balance.figures(),
    )
    assert client.retries == proxy.struck == 2 * rounds
    assert balance.ledger.accepted == balance.ledger.done == 40 * rounds
    assert balance.repeated == 0


async def test_blocks_whose_lease_was_not_heard_come_back(tmp_path: Path) -> None:
    """Fault 13: the answers to lease calls are lost; nothing is stuck after the lease."""
    async with behind_proxy(tmp_path) as (fleet, proxy):
        await fleet.offer(200)
        proxy.cut(TO_CALLER, when=LEASES, times=2)
        began = time.monotonic()
        await fleet.agent("a", FEW_AT_ONCE, [proxy.url])
        await fleet.until_all_ended()
        took = time.monotonic() - began
        freed = await fleet.client.metric("skep_lease_expired_total")
        balance = await fleet.check()
    tell(
        "13",
        lost_answers=proxy.struck,
        blocks_freed=int(freed),
        stuck=balance.ledger.open,
        all_done_after=took,
        **balance.figures(),
    )
    assert freed > 0
    assert balance.ledger.done == 200
    assert balance.repeated == 0


async def test_results_that_vanish_in_a_black_hole_arrive_later(tmp_path: Path) -> None:
    """Fault 12: reports are sent and nothing happens, until it does."""
    async with behind_proxy(tmp_path) as (fleet, proxy):
        agent = await fleet.agent("a", FEW_AT_ONCE, [proxy.url])
        proxy.hold_calls(REPORTS)
        await fleet.offer(300)
        await fleet.wait_for(lambda: len(fleet.site.hits) == 300)
        assert (await fleet.client.ledger()).done == 0
        assert fleet.blocks_of(agent) > 0
        proxy.heal()
        await fleet.until_all_ended()
        balance = await fleet.check()
    tell("12 held", reports_held=proxy.struck, **balance.figures())
    assert (balance.ledger.done, balance.repeated) == (300, 0)


async def test_results_wait_on_disk_while_reports_fail(tmp_path: Path) -> None:
    """Fault 12: the outbox fills, and its leases are renewed, so no agent does it again."""
    async with behind_proxy(tmp_path) as (fleet, proxy):
        agent = await fleet.agent("a", FEW_AT_ONCE, [proxy.url])
        proxy.cut(TO_SERVER, when=REPORTS, times=None)
        await fleet.offer(200)

        async def on_disk() -> bool:
            return (await fleet.client.vitals(agent.id)).outbox == 200

        await fleet.wait_for(on_disk)
        assert (await fleet.client.ledger()).done == 0
        proxy.heal()
        await fleet.until_all_ended()
        vitals = await fleet.client.vitals(agent.id)
        balance = await fleet.check()
    tell("12 disk", on_disk=200, dropped=vitals.dropped, **balance.figures())
    assert (balance.ledger.done, balance.repeated, vitals.dropped) == (200, 0, 0)


async def test_a_full_outbox_drops_counts_and_the_work_is_done_again(tmp_path: Path) -> None:
    """Fault 12: beyond the bound the oldest go, and their leases run out."""
    small = {**FEW_AT_ONCE, "SKEP_AGENT_OUTBOX_BYTES": "400000"}
    async with behind_proxy(tmp_path, latency=0.1) as (fleet, proxy):
        agent = await fleet.agent("a", small, [proxy.url])
        proxy.cut(TO_SERVER, when=REPORTS, times=None)
        await fleet.offer(200)

        async def dropped() -> bool:
            vitals = await fleet.client.vitals(agent.id)
            return vitals.dropped > 0 and len(fleet.site.hits) == 200

        await fleet.wait_for(dropped)
        proxy.heal()
        await fleet.until_all_ended()
        vitals = await fleet.client.vitals(agent.id)
        balance = await fleet.check()
    tell("12 full", dropped=vitals.dropped, **balance.figures())
    assert balance.ledger.done == 200
    assert balance.repeated >= vitals.dropped > 0


async def test_a_one_way_partition_has_no_effect_twice(tmp_path: Path) -> None:
    """Fault 29: first nothing reaches the center, then nothing reaches the agent; each time
    another agent does the work, and what arrives late changes nothing."""
    async with behind_proxy(tmp_path, latency=0.1) as (fleet, proxy):
        cut_off = await fleet.agent("a", FEW_AT_ONCE, [proxy.url])
        other = await fleet.agent("b", FEW_AT_ONCE)
        for way in (TO_SERVER, TO_CALLER):
            await fleet.client.allow(other.id, enabled=False)
            await fleet.offer(100)
            await fleet.wait_for(lambda: fleet.blocks_of(cut_off) > 0)
            proxy.hold(way)
            await fleet.client.allow(other.id, enabled=True)
            await fleet.until_all_ended()
            proxy.heal()
            await fleet.wait_for(lambda: fleet.client.is_alive(cut_off.id))
        fenced = await fleet.client.metric("skep_fenced_writes_total")
        balance = await fleet.check()
        agents = await fleet.client.agents()
    tell("29", partitions=2, fenced=int(fenced), agents=len(agents), **balance.figures())
    assert balance.ledger.done == 200
    assert len(agents) == 2


async def listen(client: CenterClient, agent: str, heard: asyncio.Queue[Command]) -> None:
    async for command in client.commands(agent):
        heard.put_nowait(command)


async def test_a_half_open_connection_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault 28: no FIN ever comes; the agent's own pings find out, in a tenth of the time."""
    assert wire.PING_SECONDS * 1.5 <= 25
    monkeypatch.setattr(wire, "PING_SECONDS", wire.PING_SECONDS / 10)
    async with behind_proxy(tmp_path) as (fleet, proxy):
        token = fleet.center.agent_token.read_text().strip()
        heard: asyncio.Queue[Command] = asyncio.Queue()
        async with CenterClient([proxy.url], token, SystemClock(), Random(28)) as client:
            direct = CenterClient([fleet.center.url], token, SystemClock(), Random(28))
            await direct.register(Register(Registration("agent-home", "home")))
            await direct.close()
            listening = asyncio.create_task(listen(client, "agent-home", heard))
            await fleet.wait_for(lambda: proxy.open == 1)
            proxy.hold()
            began = time.monotonic()
            await fleet.wait_for(lambda: proxy.connections > 1)
            noticed = time.monotonic() - began
            proxy.heal()
            for _ in range(3):
                await asyncio.sleep(0.2)
                await fleet.client.command("agent-home", "wake")
            await fleet.wait_for(lambda: not heard.empty())
            listening.cancel()
    tell("28", ping=wire.PING_SECONDS, reconnected_after=noticed, sent=3, heard=heard.qsize())
    assert noticed < 1.5 * wire.PING_SECONDS + 0.5 + 1.5
    assert heard.qsize() <= 3


async def test_outage_and_flapping_make_no_herd(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Faults 11, 14: ten agents come back spread in time, with few log lines and sockets."""
    count, flaps = 10, 8
    caplog.set_level(logging.INFO, logger="skep")
    async with behind_proxy(tmp_path) as (fleet, proxy):
        token = fleet.center.agent_token.read_text().strip()
        async with running_agents(count, [proxy.url], token, tmp_path / "agents") as agents:

            async def all_alive() -> bool:
                return sum((await fleet.client.agents()).values()) == count

            await fleet.wait_for(all_alive)
            proxy.refuse()
            before = proxy.connections
            await asyncio.sleep(5)
            per_beat = (proxy.connections - before) / count * BEAT / 5
            proxy.heal()
            healed = time.monotonic()
            beats = [agent.heartbeats.beats for agent in agents]
            await fleet.wait_for(
                lambda: all(a.heartbeats.beats > b for a, b in zip(agents, beats, strict=True))
            )
            back = time.monotonic() - healed
            arrivals = [at for at in proxy.arrivals if at >= healed]
            peak = max(sum(at <= one < at + 0.1 for one in arrivals) for at in arrivals)
            await proxy.flap(up=0.2, down=0.2, times=flaps)
            await fleet.wait_for(all_alive)
            await fleet.wait_for(lambda: proxy.open <= 4 * count)
            sockets = proxy.open
        lines = len([one for one in caplog.records if one.name.startswith("skep")])
    tell(
        "11/14",
        agents=count,
        tries_per_beat=per_beat,
        back_after=back,
        peak_per_100ms=peak,
        flaps=flaps,
        log_lines=lines,
        sockets=sockets,
    )
    assert per_beat <= 3
    assert peak <= 1.5 * count
    assert lines <= count * (2 * (flaps + 1) + 4)
