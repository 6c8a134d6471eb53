"""Content rules from the API to a spider's callback, over a real center and agent (A5)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from skep.embed.embedded import LocalAgent, LocalCenter, with_loopback
from skep.errors import InvalidInput
from skep.runtime.clock import SystemClock
from skep.settings import load
from skep.testing.grounds.record_checks import assert_whole
from skep.testing.servers.hostile_http import HostileServer, says
from skep.wire.client import CenterClient

HTML = [("Content-Type", "text/html; charset=utf-8")]
PAGE = b"<html><nav>menu</nav><article>what we want</article>" + b"<p>filler</p>" * 5000


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[CenterClient]:
    settings = with_loopback(load(flags={"data": str(tmp_path / "data"), "center.port": 0}))
    center = LocalCenter(settings, SystemClock(), Random(1))
    await center.start()
    agent = LocalAgent(center, SystemClock(), Random(2))
    await agent.start()
    async with CenterClient([center.url], center.admin_token, SystemClock(), Random(3)) as client:
        yield client
    await assert_whole(center.center.services)
    await agent.stop()
    await center.stop()


@pytest.fixture
async def server() -> AsyncIterator[HostileServer]:
    async with HostileServer({"/page": says(PAGE, headers=HTML)}) as server:
        yield server


async def ended(api: CenterClient, run: str) -> dict[str, Any]:
    """The only request of a run, when it has ended."""
    async with asyncio.timeout(20):
        while True:
            block = await api.call("GET", f"/requestqueue/{run}?wait=1", None, dict)
            if block["blocks"]:
                found: dict[str, Any] = block["blocks"][0]["requests"][0]
                return found


async def test_only_what_the_rules_keep_reaches_the_center(
    api: CenterClient, server: HostileServer
) -> None:
    rules = {"steps": [{"css": "article::text"}], "unmatched": "fail"}
    await api.call("PUT", "/api/v1/runs/cut", {"settings": {"content": rules}}, dict)
    await api.call("POST", "/requestqueue/cut", [{"uri": server.url("/page")}], bytes)
    request = await ended(api, "cut")
    body = await api.call("GET", f"/api/v1/requests/{request['id']}/body", None, bytes)
    assert (request["state"], body) == ("done", b"what we want")
    shown = await api.call("GET", "/api/v1/runs/cut", None, dict)
    assert shown["run"]["settings"]["content"] == rules


@pytest.mark.parametrize(
    ("rules", "said"),
    [
        ({"steps": [{"css": "a["}]}, "content step 0: 'css=a['"),
        ({"steps": [{"first": 9}, {"regex": "(a"}]}, "content step 1: 'regex=(a'"),
        ({"steps": [{"cs": "a"}]}, "content step 0 must have exactly one of"),
        ({"steps": [], "unmatched": "maybe"}, "unmatched"),
    ],
)
async def test_rules_that_cannot_be_followed_open_no_run(
    rules: dict[str, Any], said: str, api: CenterClient
) -> None:
    """D1: what is not valid is not stored, and the error says what is wrong."""
    with pytest.raises(InvalidInput) as refused:
        await api.call("PUT", "/api/v1/runs/bad", {"settings": {"content": rules}}, dict)
    assert said in refused.value.detail
    assert (await api.call("GET", "/api/v1/runs", None, dict))["items"] == []
