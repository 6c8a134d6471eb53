"""The fault kit on real processes: a killer with a seed, wrong clocks, cables, small disks."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random

import msgspec
import pytest

from skep.errors import DiskFull
from skep.testing.faultproxy import FaultProxy
from skep.testing.fleet import Fleet, tell
from skep.testing.killer import VARIABLE, Act, Killer, plan, seed_from
from skep.testing.namespaces import Namespace, NamespacedAgent
from skep.testing.needs import unless_absent
from skep.testing.processes import AgentProcess
from skep.testing.skew import SkewedClock
from skep.testing.small_disk import fill, small_disk

FEW_AT_ONCE = {"SKEP_AGENT_CONCURRENCY": "16"}
HOUR = 3600.0


def test_a_seed_strikes_in_the_same_way_again() -> None:
    def strokes(seed: int) -> object:
        return plan(Random(seed), 3, 20, tuple(Act), (0.1, 0.5), (1.0, 2.0))

    assert strokes(5) == strokes(5) != strokes(6)
    assert seed_from({VARIABLE: "4711"}) == 4711
    assert seed_from({}) != seed_from({})


@pytest.mark.slow
async def test_agents_under_a_seeded_killer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Faults 22, 30, 47: killed, frozen and stopped by chance; nothing is lost. In small it is
    the first example of docs/how-to/test-your-fleet.md, which is run as a test too."""
    strokes, requests = 40, 4000
    async with Fleet(tmp_path, latency=0.05, pages=requests) as fleet:
        await asyncio.gather(fleet.agent("a", FEW_AT_ONCE), fleet.agent("b", FEW_AT_ONCE))
        await fleet.offer(requests)
        seed = seed_from({VARIABLE: "220", **os.environ})
        killer = Killer(fleet.agents, seed)
        await killer.strike(strokes, tuple(Act), gap=(0.0, 0.3), freeze=(0.5, 3.0))
        await fleet.until_all_ended(120)
        balance = await fleet.check()
    assert f"SKEP_TESTS_SEED={seed}" in capsys.readouterr().out
    tell("22/30/47", **killer.figures(), **balance.figures())
    assert sum(killer.struck.values()) == strokes
    assert balance.ledger.done == requests


def hour_of(agent: AgentProcess) -> str:
    """As its own log has it."""
    return str(msgspec.json.decode(agent.said()[-1])["at"])[:13]


@pytest.mark.usefixtures("libfaketime")
async def test_agents_whose_clocks_are_hours_wrong(tmp_path: Path) -> None:
    """Fault 31: an hour ahead, an hour behind, and jumping in the middle of their work; the
    center's clock decides, so no agent is taken for dead and no lease runs out."""
    ahead, behind = SkewedClock(tmp_path / "ahead", HOUR), SkewedClock(tmp_path / "behind", -HOUR)
    # An hour is a multiple of these; what a busy machine adds is not.
    patient = {"SKEP_CENTER_ALIVE_AFTER": "20", "SKEP_LANES_LEASE_SECONDS": "30"}
    async with Fleet(tmp_path, patient, latency=0.05) as fleet:
        one = await fleet.agent("a", {**FEW_AT_ONCE, **ahead.env})
        two = await fleet.agent("b", {**FEW_AT_ONCE, **behind.env})
        assert hour_of(one) != hour_of(two), "else nothing is tried here"
        await fleet.offer(200)
        await fleet.until_done(60)
        ahead.set(-HOUR)
        behind.set(HOUR)
        await fleet.until_all_ended()
        alive = await fleet.client.agents()
        expired = await fleet.client.metric("skep_lease_expired_total")
        balance = await fleet.check()
    tell("31", skew="+-1 h", jumps=2, leases_expired=int(expired), **balance.figures())
    assert alive == {one.id: True, two.id: True}
    assert (expired, balance.repeated) == (0, 0)


@pytest.fixture
def homes() -> Iterator[list[Namespace]]:
    """Two machines of their own."""
    with ExitStack() as stack:
        with unless_absent():
            made = [stack.enter_context(Namespace()) for _ in range(2)]
        yield made


async def test_a_cable_that_is_pulled(tmp_path: Path, homes: list[Namespace]) -> None:
    """Faults 17, 28: agents with addresses of their own; no FIN, no RST, no handshake. The
    other one does the work, and the first is back when its cable is."""
    env = {"SKEP_CENTER_HOST": "0.0.0.0"}
    async with (
        Fleet(tmp_path, env, latency=0.05) as fleet,
        FaultProxy(int(fleet.site.url.rpartition(":")[2]), host=homes[1].gateway) as site,
    ):
        agents = []
        with ExitStack() as stack:
            for number, home in enumerate(homes):
                address = [f"http://{home.gateway}:{fleet.center.port}"]
                token = fleet.center.agent_token
                agent = NamespacedAgent(home, tmp_path / f"n{number}", address, token, FEW_AT_ONCE)
                agents.append(agent)
                stack.callback(agent.kill)
                await asyncio.to_thread(agent.start)
            await fleet.client.offer([f"{site.url}/page/{number}" for number in range(400)])
            await fleet.wait_for(lambda: homes[0].address in site.peers)
            homes[0].pull()
            pulled = time.monotonic()
            await fleet.wait_for(lambda: fleet.blocks_of(agents[0]) == 0)
            freed = time.monotonic() - pulled
            await fleet.until_all_ended()
            homes[0].plug()
            await fleet.wait_for(lambda: fleet.client.is_alive(agents[0].id))
            ledger = await fleet.client.ledger(audit=True)
    tell("17/28", addresses=len(site.peers), blocks_free_after=freed, done=ledger.done, lost=0)
    assert site.peers == {home.address for home in homes}
    assert (ledger.done, ledger.accepted) == (400, 400)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A volume of 20 MB."""
    with unless_absent(), small_disk(tmp_path / "disk", megabytes=20) as folder:
        yield folder


async def test_a_center_on_a_volume_that_is_full(tmp_path: Path, disk: Path) -> None:
    """Fault 25: 20 MB to the last byte; it refuses with 507, stays up, and goes on by itself
    when there is room again. Nothing is corrupt and nothing acknowledged is lost."""
    env = {"SKEP_KEEP_FREE_BYTES": "0"}
    async with Fleet(disk, env, latency=0.02) as fleet:
        agent = fleet.new_agent("a", FEW_AT_ONCE)
        agent.folder = tmp_path / "agent"
        agent.folder.mkdir()
        await fleet.offer(100)
        fill(disk / "filler")
        refused = 0
        for _ in range(20):
            try:
                await fleet.client.api.call("POST", "/requestqueue/web", many(fleet), bytes)
            except DiskFull:
                refused += 1
        assert fleet.center.running
        (disk / "filler").unlink()
        await fleet.offer(100)
        await asyncio.to_thread(agent.start)
        await fleet.until_all_ended()
        balance = await fleet.check()
        starts = fleet.center.starts
    with sqlite3.connect(disk / "center" / "skep.db") as raw:
        integrity = raw.execute("PRAGMA integrity_check").fetchone()[0]
    raw.close()
    tell("25", volume="20 MB", refused=refused, integrity=integrity, **balance.figures())
    assert refused > 0
    assert (starts, integrity) == (1, "ok")


def many(fleet: Fleet) -> list[str]:
    """Too large for what is left of the disk."""
    return [f"{fleet.site.url}/page/0?{'x' * 900}{number}" for number in range(1000)]
