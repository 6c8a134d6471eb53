"""Rows of the table of faults with their own figures: the settings as shipped, whole outages,
all the kills (faults 6, 7, 8, 9, 10, 12, 14, 17, 30). They take minutes and run in
`make faults`; the short ones of the same rows stand in the files beside this one."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path

import psutil
import pytest
import sqlalchemy as sa

from skep.model.states import CLAIMABLE, BlockState
from skep.store.sql.schema.blocks import blocks
from skep.testing.faultproxy import FaultProxy
from skep.testing.fleet import Fleet, running_agents, tell
from skep.testing.processes import AgentProcess

pytestmark = pytest.mark.slow

FEW_AT_ONCE = {"SKEP_AGENT_CONCURRENCY": "16"}
#: What tests shorten elsewhere.
SHIPPED = {
    "SKEP_CENTER_ALIVE_AFTER": "11",
    "SKEP_CENTER_HEARTBEAT_EVERY": "3",
    "SKEP_CENTER_SWEEP_EVERY": "1",
    "SKEP_LANES_LEASE_SECONDS": "30",
    "SKEP_LANES_RECONCILE_EVERY": "5",
}
REPORTS = b"POST /node/block"
BEAT, ALIVE_AFTER, SWEEP = 3.0, 11.0, 1.0
#: What a busy machine may add.
SLACK = 3.0


@asynccontextmanager
async def behind_proxy(
    folder: Path, env: dict[str, str], latency: float = 0.0
) -> AsyncIterator[tuple[Fleet, FaultProxy]]:
    async with (
        Fleet(folder, env, latency=latency) as fleet,
        FaultProxy(fleet.center.port) as proxy,
    ):
        yield fleet, proxy


async def hold_and_freeze(fleet: Fleet, proxy: FaultProxy, agents: list[AgentProcess]) -> None:
    """Each has work in hand and a report on its way when it stops."""
    struck = proxy.struck
    proxy.hold_calls(REPORTS)
    for agent in agents:  # one after the other, or one would take it all
        await fleet.client.allow(agent.id, enabled=True)
        await fleet.offer(40)
        await fleet.wait_for(partial(busy, fleet, agent))
        await fleet.client.allow(agent.id, enabled=False)
    await fleet.wait_for(lambda: proxy.struck >= struck + len(agents))
    for agent in agents:
        agent.pause()


async def test_twenty_pauses_of_three_leases(tmp_path: Path) -> None:
    """Faults 6, 30: four agents stop for three leases, five times; another one does the work
    meanwhile; what the four say afterwards is refused. Leases are 4 s here."""
    rounds, lease = 5, 4.0
    async with behind_proxy(tmp_path, {}, latency=0.1) as (fleet, proxy):
        names = ("a", "b", "c", "d")
        frozen = [await fleet.agent(name, FEW_AT_ONCE, [proxy.url]) for name in names]
        other = await fleet.agent("e", FEW_AT_ONCE)
        for agent in frozen:
            await fleet.client.allow(agent.id, enabled=False)
        for _ in range(rounds):
            await fleet.client.allow(other.id, enabled=False)
            await hold_and_freeze(fleet, proxy, frozen)
            began = time.monotonic()
            await fleet.client.allow(other.id, enabled=True)
            await fleet.until_all_ended(60)
            await asyncio.sleep(max(0.0, began + 3 * lease - time.monotonic()))
            proxy.heal()
            for agent in frozen:
                agent.resume()
            for agent in frozen:
                await fleet.wait_for(partial(fleet.client.is_alive, agent.id))
        fenced = await fleet.client.metric("skep_fenced_writes_total")
        balance = await fleet.check()
    pauses = rounds * len(frozen)
    tell(
        "6/30",
        pauses=pauses,
        each=3 * lease,
        refused=int(fenced),
        stale_accepted=balance.doubled,
        **balance.figures(),
    )
    assert fenced >= pauses
    assert balance.ledger.done == 160 * rounds


async def test_the_center_is_down_for_30_seconds_with_1000_queued(tmp_path: Path) -> None:
    """Faults 7, 8: half of them expire in the outage; none of those is acted on."""
    async with Fleet(tmp_path, SHIPPED) as fleet:
        await fleet.offer(500, expires_in=20.0)
        await fleet.offer(500)
        await asyncio.to_thread(fleet.center.kill)
        await asyncio.sleep(30.0)
        await asyncio.to_thread(fleet.center.start)
        await fleet.agent("a", FEW_AT_ONCE)
        ledger = await fleet.until_all_ended(60)
        acted = sum(1 for path in fleet.site.hits if int(path.rpartition("/")[2]) < 500)
        audit = await fleet.client.ledger(audit=True)
    tell(
        "7/8",
        outage=30,
        accepted=ledger.accepted,
        done=ledger.done,
        expired=ledger.expired,
        acted_on_expired=acted,
        unaccounted=audit.unaccounted,
    )
    assert (ledger.done, ledger.expired, acted) == (500, 500, 0)
    assert audit == ledger


async def test_ten_agents_beat_through_an_outage_of_60_seconds(tmp_path: Path) -> None:
    """Faults 9, 10: after it each is heard once and goes on at its pace, as itself."""
    count = 10
    async with Fleet(tmp_path, SHIPPED) as fleet:
        token = fleet.center.agent_token.read_text().strip()
        async with running_agents(count, [fleet.center.url], token, tmp_path / "agents") as agents:
            await fleet.wait_for(lambda: all(agent.heartbeats.beats > 1 for agent in agents))
            await asyncio.to_thread(fleet.center.kill)
            await asyncio.sleep(60.0)
            before = [agent.heartbeats.beats for agent in agents]
            ready_at = time.time()
            await asyncio.to_thread(fleet.center.start)
            ready = time.monotonic()
            await fleet.wait_for(
                lambda: all(a.heartbeats.beats > b for a, b in zip(agents, before, strict=True))
            )
            back = time.monotonic() - ready
            await asyncio.sleep(2 * BEAT)
            beats = [await fleet.client.heartbeats(agent.id) for agent in agents]
            known = await fleet.client.agents()
    after = [[at for at in times if at > ready_at] for times in beats]
    first_beat = [sum(at < times[0] + BEAT / 2 for at in times) for times in after]
    closest = min(b - a for times in after for a, b in pairwise(times))
    tell(
        "9/10",
        agents=count,
        outage=60,
        beats_of_each_at_return=max(first_beat),
        closest_beats=closest,
        all_back_after=back,
        agents_known=len(known),
    )
    assert max(first_beat) == 1
    assert back <= BEAT + SLACK
    assert sorted(known) == sorted(agent.id for agent in agents)


async def test_results_in_a_black_hole_for_60_seconds(tmp_path: Path) -> None:
    """Fault 12: no report gets through for a minute; results wait on disk, nothing is done
    again, nothing is lost."""
    async with behind_proxy(tmp_path, SHIPPED, latency=0.05) as (fleet, proxy):
        agent = await fleet.agent("a", FEW_AT_ONCE, [proxy.url])
        proxy.hold_calls(REPORTS)
        began = time.monotonic()
        await fleet.offer(1000)
        await fleet.wait_for(lambda: len(fleet.site.hits) >= 900, 50)
        await asyncio.sleep(max(0.0, began + 60.0 - time.monotonic()))
        assert (await fleet.client.ledger()).done == 0
        assert await fleet.client.is_alive(agent.id)
        fetched = len(fleet.site.hits)
        proxy.heal()
        healed = time.monotonic()
        await fleet.until_all_ended(60)
        took = time.monotonic() - healed
        balance = await fleet.check()
    tell("12", black_hole=60, fetched=fetched, delivered_after=took, **balance.figures())
    assert (balance.ledger.done, balance.repeated) == (1000, 0)


async def test_a_line_that_flaps_sixty_times(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Fault 14: a second up, a second down, sixty times, ten agents: sockets leaked 0, and a
    bounded number of log lines."""
    count, flaps = 10, 60
    caplog.set_level(logging.INFO, logger="skep")
    async with behind_proxy(tmp_path, SHIPPED) as (fleet, proxy):
        token = fleet.center.agent_token.read_text().strip()
        center = psutil.Process(fleet.center.pid)
        async with running_agents(count, [proxy.url], token, tmp_path / "agents") as agents:
            await fleet.wait_for(lambda: all(agent.heartbeats.beats > 2 for agent in agents))
            sockets, cpu = len(center.net_connections()), sum(center.cpu_times()[:2])
            caplog.clear()
            began = time.monotonic()
            await proxy.flap(up=1.0, down=1.0, times=flaps)
            minutes = (time.monotonic() - began) / 60
            lines = sum(one.name.startswith("skep") for one in caplog.records)
            used = sum(center.cpu_times()[:2]) - cpu
            beats = [agent.heartbeats.beats for agent in agents]
            await fleet.wait_for(
                lambda: all(a.heartbeats.beats > b + 1 for a, b in zip(agents, beats, strict=True))
            )
            await fleet.wait_for(lambda: proxy.open <= 4 * count)
            at_peace = proxy.open
        await fleet.wait_for(lambda: proxy.open == 0)
        await fleet.wait_for(lambda: len(center.net_connections()) <= sockets)
        left = max(0, len(center.net_connections()) - sockets)
    tell(
        "14",
        agents=count,
        flaps=flaps,
        sockets_in_use=at_peace,
        sockets_leaked=left + proxy.open,
        log_lines_a_minute_of_each=lines / minutes / count,
        center_cpu_seconds=used,
    )
    assert left == 0
    # An outage is two lines: it started, it ended.
    assert lines <= count * (2 * flaps + 4)


def block_ids(fleet: Fleet, condition: sa.ColumnElement[bool]) -> list[int]:
    """Read past the center."""
    engine = sa.create_engine(fleet.center.store_url)
    try:
        with engine.connect() as connection:
            return [row.id for row in connection.execute(sa.select(blocks.c.id).where(condition))]
    finally:
        engine.dispose()


def held_by(agent: AgentProcess) -> sa.ColumnElement[bool]:
    return sa.and_(blocks.c.agent == agent.id, blocks.c.state == BlockState.USING)


def idle(fleet: Fleet, agent: AgentProcess) -> bool:
    return fleet.blocks_of(agent) == 0


def busy(fleet: Fleet, agent: AgentProcess) -> bool:
    return fleet.blocks_of(agent) > 0


def moved(fleet: Fleet, ids: list[int], victim: AgentProcess) -> bool:
    """Are these blocks in other hands, or done?"""
    here = held_by(victim) | blocks.c.state.in_(CLAIMABLE)
    return not block_ids(fleet, blocks.c.id.in_(ids) & here)


async def test_one_of_four_agents_is_killed_with_settings_as_shipped(tmp_path: Path) -> None:
    """Fault 17: each of four in turn. Its work is elsewhere within 11 s of its last beat and
    one look of the reaper, and nothing is sent to it after it was found dead."""
    async with Fleet(tmp_path, SHIPPED, latency=0.3, block_size=5) as fleet:
        names = ("a", "b", "c", "d")
        few = {"SKEP_AGENT_CONCURRENCY": "8"}
        agents = [await fleet.agent(name, few) for name in names]
        detected, elsewhere, sent_after = [], [], 0
        for victim in agents:
            await fleet.offer(300)
            await fleet.wait_for(partial(busy, fleet, victim))
            await asyncio.to_thread(victim.kill)
            killed = time.monotonic()
            ids = block_ids(fleet, held_by(victim))
            await fleet.wait_for(partial(idle, fleet, victim))
            detected.append(time.monotonic() - killed)
            await fleet.wait_for(partial(moved, fleet, ids, victim))
            elsewhere.append(time.monotonic() - killed)
            for _ in range(20):
                sent_after += fleet.blocks_of(victim)
                await asyncio.sleep(0.05)
            await asyncio.to_thread(victim.start)
        await fleet.until_all_ended(60)
        balance = await fleet.check()
    tell(
        "17",
        agents=4,
        kills=len(detected),
        detected_after=max(detected),
        work_elsewhere_after=max(elsewhere),
        sent_after_detection=sent_after,
        **balance.figures(),
    )
    assert sent_after == 0
    assert max(detected) <= ALIVE_AFTER + SWEEP + SLACK
