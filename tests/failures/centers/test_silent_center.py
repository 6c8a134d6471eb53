"""R5: an agent leaves a center that is silent, with every call that is open there."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import pytest

from skep.model.fleet.agent import Registration
from skep.runtime.clock import SystemClock
from skep.runtime.signals import within
from skep.testing.doubles.center import center_double
from skep.testing.fleet import Fleet, tell
from skep.wire.client import CenterClient
from skep.wire.client.addresses import HEDGE_AFTER, Addresses
from skep.wire.messages import Heartbeat, LeaseAsk, Register

#: As shipped: the agent has nothing to hurry it but itself.
SHIPPED = {
    "SKEP_CENTER_ALIVE_AFTER": "11",
    "SKEP_CENTER_HEARTBEAT_EVERY": "3",
    "SKEP_LANES_LEASE_SECONDS": "30",
    "SKEP_AGENT_LEASE_WAIT": "20",
    "SKEP_AGENT_CONCURRENCY": "16",
}
FROZEN = 8.0
#: Seconds without a download, at most.
GAP = 3.0


async def test_agents_go_on_within_three_seconds_when_their_center_freezes(
    tmp_path: Path, shared: dict[str, str]
) -> None:
    """R5, faults 15 and 30: under load, with the settings that are shipped."""
    async with Fleet(tmp_path, {**shared, **SHIPPED}, latency=0.2, pages=3000) as fleet:
        second = await fleet.another_center("second")
        await fleet.reach(second, fleet.center)
        await fleet.agent("a", SHIPPED, [fleet.center.url, second.url])
        await fleet.offer(2000)
        await fleet.until_done(100)
        fleet.center.pause()
        try:
            longest = await longest_gap(fleet, FROZEN)
        finally:
            fleet.center.resume()
        tell("30", frozen=FROZEN, longest_gap=longest)
        assert longest < GAP
        await fleet.until_all_ended(60)
        balance = await fleet.check()
        assert balance.ledger.done == 2000


async def longest_gap(fleet: Fleet, seconds: float) -> float:
    """The longest time in which the site was not asked for anything."""
    began = last = time.monotonic()
    count, longest = sum(fleet.site.hits.values()), 0.0
    while time.monotonic() < began + seconds:
        await asyncio.sleep(0.02)
        now, before, count = time.monotonic(), count, sum(fleet.site.hits.values())
        if count != before:
            longest, last = max(longest, now - last), now
    return max(longest, time.monotonic() - last)


@asynccontextmanager
async def silent_server(seconds: float = 600.0) -> AsyncIterator[str]:
    """It accepts and never answers, as a frozen process does; it hangs up after `seconds`."""
    hung_up = asyncio.Event()

    async def keep(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await within(hung_up, seconds)
        writer.close()

    server = await asyncio.start_server(keep, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        hung_up.set()
        server.close()


async def test_calls_at_a_silent_center_are_broken_off_when_a_heartbeat_moves(
    tmp_path: Path, shared: dict[str, str]
) -> None:
    """R5: a lease call that would have waited for 11 s is answered by the other center."""
    async with Fleet(tmp_path, shared) as fleet, silent_server() as silent:
        agent = await fleet.agent("a")
        token = fleet.center.agent_token.read_text().strip()
        urls = [silent, fleet.center.url]
        async with CenterClient(urls, token, SystemClock(), Random(1)) as client:
            lease = asyncio.create_task(client.lease(LeaseAsk(agent.id, wait=1.0)))
            await asyncio.sleep(0)
            began = time.monotonic()
            await client.heartbeat(Heartbeat(agent.id), 8.0)
            assert time.monotonic() - began < GAP
            assert client.address == fleet.center.url
            await lease
            assert time.monotonic() - began < 2 * GAP


async def test_a_message_that_waited_says_how_long() -> None:
    """E11, C10: the second center hears how old a heartbeat or a registration is by then."""
    async with silent_server() as silent, silent_server(0.5) as broken, center_double() as center:
        urls, clock, rng = [silent, center.url], SystemClock(), Random(1)
        async with CenterClient(urls, center.token, clock, rng) as client:
            for _ in range(2):
                await client.heartbeat(Heartbeat("a"), 8.0)
        first, second = (beat.age for beat in center.beats)
        assert first >= HEDGE_AFTER > second
        async with CenterClient([broken, center.url], center.token, clock, rng) as client:
            for _ in range(2):
                await client.register(Register(Registration("a", "a")))
        first, second = center.registration_ages
        assert first >= 0.5 > second


async def test_a_center_that_is_only_slow_is_not_left() -> None:
    """R5: the first answer decides, however late it is; the other one is slow as well."""
    addresses = Addresses(["http://one", "http://two"], lambda: pytest.fail("it moved"))

    async def attempt(url: str) -> str:
        await asyncio.sleep(HEDGE_AFTER * 1.2)
        return url

    assert await addresses.hedged("/x", attempt) == "http://one/x"
    assert addresses.current == "http://one"
