"""A center and an agent in one process, as `skep up` and programs of yours hold them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest

from skep.embed.embedded import LocalAgent, LocalCenter, with_loopback
from skep.errors import ConfigurationError, Unauthorized
from skep.runtime.clock import SystemClock
from skep.settings import Settings, load
from skep.testing.site import DemoSite
from skep.wire.client import CenterClient


def settings_in(folder: Path) -> Settings:
    return with_loopback(load(flags={"data": str(folder), "center.port": 0}))


@pytest.fixture
async def center(tmp_path: Path) -> AsyncIterator[LocalCenter]:
    local = LocalCenter(settings_in(tmp_path / "data"), SystemClock(), Random(1))
    await local.start()
    yield local
    await local.stop()


def test_named_places_are_allowed_only_when_nothing_else_is_said() -> None:
    """H1: no network is opened; loopback is reached where a person named host and port."""
    egress = with_loopback(load()).egress
    assert (egress.named, egress.allow) == (True, ())
    chosen = load(flags={"egress.deny": ["127.0.0.0/8"]})
    assert with_loopback(chosen) == chosen


async def test_one_center_per_folder(center: LocalCenter) -> None:
    with pytest.raises(ConfigurationError, match="another center works in"):
        LocalCenter(center.settings, SystemClock(), Random(2))


async def test_the_center_outlives_an_agent_that_is_told_to_exit(center: LocalCenter) -> None:
    clock, rng = SystemClock(), Random(3)
    agent = LocalAgent(center, clock, rng)
    await agent.start()
    async with CenterClient([center.url], center.admin_token, clock, rng) as client:
        (line,) = (await client.call("GET", "/api/v1/agents", None, dict))["items"]
        await client.call(
            "POST", f"/api/v1/agents/{line['agent']['registration']['id']}/exit", None, dict
        )
        async with asyncio.timeout(10):
            await agent.ended()
        await agent.stop()
        assert (await client.call("GET", "/readyz", None, dict))["status"] == "ok"


async def test_an_agent_that_is_refused_says_why_and_leaves_nothing_open(
    center: LocalCenter,
) -> None:
    center.agent_token = "skep_agent_nobody"
    agent = LocalAgent(center, SystemClock(), Random(4))
    with pytest.raises(Unauthorized):
        await agent.start()
    await agent.stop()
    again = LocalAgent(center, SystemClock(), Random(5))
    with pytest.raises(Unauthorized):
        await again.start()
    await again.stop()


class Noting(SystemClock):
    """Records for how long the callers wanted to sleep."""

    def __init__(self) -> None:
        self.asked: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.asked.append(seconds)
        await super().sleep(seconds)


async def test_one_page_and_the_end_wait_for_no_fixed_times(
    center: LocalCenter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """U15: the only page does not wait for company, and an agent with nothing to give back does
    not hear out its lease call."""
    company, grace = 0.0201, 0.0202  # as long as they are, and no one else's
    monkeypatch.setattr("skep.agent.work.reporting.LINGER", company)
    monkeypatch.setattr("skep.agent.redial.STEP", grace)
    clock, rng = Noting(), Random(6)
    agent = LocalAgent(center, clock, rng)
    await agent.start()
    async with (
        DemoSite(pages=2) as site,
        CenterClient([center.url], center.admin_token, SystemClock(), rng) as client,
    ):
        await client.call("PUT", "/api/v1/runs/one", {"settings": {}}, dict)
        await client.call("POST", "/requestqueue/one", [{"uri": f"{site.url}/page/1"}], bytes)
        async with asyncio.timeout(30):
            while not (await client.call("GET", "/requestqueue/one?wait=5", None, dict))["blocks"]:
                pass
    await agent.stop()
    assert not {company, grace} & set(clock.asked)
