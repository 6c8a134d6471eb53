"""Who can do it: blocks go to agents that offer their kind of downloader (C4, D6)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from skep.model.block import Leased
from skep.model.fleet.agent import Registration
from skep.testing.grounds.centers import RunningCenter, running_center
from skep.wire.messages import Heartbeat, HeartbeatReply, LeaseAsk, LeaseReply, Register

CODE = {"source": "def run(uri):\n    return uri\n"}


@pytest.fixture
async def center(tmp_path: Path) -> AsyncIterator[RunningCenter]:
    async with running_center(tmp_path) as running:
        yield running


class Able:
    """An agent by hand that offers some kinds."""

    def __init__(self, center: RunningCenter, name: str, *kinds: str) -> None:
        self.hand = center.hand_agent(name)
        self.kinds = kinds

    async def register(self) -> None:
        about = Registration(self.hand.id, self.hand.id, kinds=self.kinds)
        assert (await self.hand.call("register", Register(about))).status == 200

    async def lease(self, want: int = 10) -> list[Leased]:
        ask = LeaseAsk(self.hand.id, want, 0.0, self.kinds)
        return (await self.hand.call("lease", ask)).read(LeaseReply).blocks

    async def beat(self, want: int) -> list[Leased]:
        reply = await self.hand.call("heartbeat", Heartbeat(self.hand.id, want=want))
        lease = reply.read(HeartbeatReply).lease
        return lease.blocks if lease else []


async def code_run(center: RunningCenter, run: str = "r", **settings: Any) -> None:
    await center.open_run(run, downloader="python", code=CODE, block_size=5, **settings)
    await center.put(run, [f"http://127.0.0.1/{n}" for n in range(20)])
    await center.dispatched()


async def test_code_goes_to_agents_that_run_code(center: RunningCenter) -> None:
    """C4: capability counts for every run; who cannot gets none, by lease or by beat."""
    plain, able = Able(center, "plain", "http"), Able(center, "able", "http", "python")
    await plain.register()
    await able.register()
    await code_run(center)
    assert await plain.lease() == []
    assert await plain.beat(5) == []
    assert len(await able.beat(1)) == 1
    assert len(await able.lease()) == 3


async def test_who_offers_no_http_gets_none(center: RunningCenter) -> None:
    """C4: an agent for code alone takes code alone."""
    code, plain = Able(center, "code", "python"), Able(center, "plain", "http")
    await code.register()
    await plain.register()
    await center.open_run("r")
    await center.put("r", ["http://127.0.0.1/"])
    await center.dispatched()
    assert await code.lease() == []
    assert len(await plain.lease()) == 1


async def test_a_kind_without_an_agent_is_answered_by_any_agent(
    center: RunningCenter,
) -> None:
    """D6: switched off everywhere; an agent takes the requests and says why they fail."""
    plain = Able(center, "plain", "http")
    await plain.register()
    await code_run(center)
    assert len(await plain.lease()) == 4


async def test_a_kind_whose_agents_are_away_waits_for_them(center: RunningCenter) -> None:
    """C4: one agent offers it and does not ask: no other agent is given its work."""
    plain, able = Able(center, "plain", "http"), Able(center, "able", "python")
    await plain.register()
    await able.register()
    await code_run(center)
    assert await plain.lease() == []
    assert (await center.ledger("r")).queued == 20
