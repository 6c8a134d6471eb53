"""Hostile user code on a whole agent with its center: everything ends, and is logged."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from skep.embed.embedded import LocalAgent, LocalCenter
from skep.errors import InvalidInput
from skep.runtime.clock import SystemClock
from skep.settings import AgentSettings, CenterSettings, Settings
from skep.testing.grounds.record_checks import assert_whole
from skep.testing.polling import until
from skep.wire.client import CenterClient

pytestmark = pytest.mark.needs("bwrap")

#: Seconds that no other process on this machine sleeps.
NAP = str(8_000_000 + os.getpid())
AGENT = """
import asyncio, sys
from random import Random
from skep.downloaders.registry import kinds
from skep.model.user_code import Code
from skep.model.request import Work
from skep.model.run import RunSettings
from skep.runtime.clock import SystemClock
from skep.settings import AgentSettings, EgressSettings
async def main():
    offered = kinds(SystemClock(), Random(), EgressSettings(), agent=AgentSettings())
    code = Code(f"setsid sleep {sys.argv[1]} & sleep {sys.argv[1]}")
    downloader = offered["shell"].open("run", RunSettings(downloader="shell", code=code))
    downloader.start(Work(1, "http://a.example/"), print)
    await asyncio.sleep(60)
asyncio.run(main())
"""
ATTACKS = """
import os
def run(uri):
    attack = uri.rpartition("/")[2]
    if attack == "fork":
        while True: os.fork()
    elif attack == "memory":
        return bytes(2**40)
    elif attack == "loop":
        while True: pass
    elif attack == "exit":
        os._exit(7)
    elif attack == "output":
        return "x" * 2**25
    return uri
"""
REASONS = {
    "fork": ("code", "Resource temporarily unavailable"),
    "memory": ("limit", "MemoryError"),
    "loop": ("timeout", "no result within 2 s"),
    "exit": ("code", "the process ended with exit code 7 while it worked on this request"),
    "output": ("limit", "the limit is 10485760"),
}


class Place:
    """A center with its agent, and a client."""

    def __init__(self, folder: Path) -> None:
        clock, rng = SystemClock(), Random(1)
        agent = AgentSettings(report_every=0.1, code_workers=2)
        settings = Settings(data=str(folder), center=CenterSettings(port=0), agent=agent)
        self.center = LocalCenter(settings, clock, rng)
        self.agent = LocalAgent(self.center, clock, rng)
        self.client: CenterClient

    async def open(self) -> None:
        await self.center.start()
        await self.agent.start()
        token = self.center.admin_token
        self.client = CenterClient([self.center.url], token, SystemClock(), Random(2))

    async def close(self) -> None:
        await self.client.close()
        await self.agent.stop()
        await self.center.stop()

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        return await self.client.call(method, path, body, dict)

    async def run(self, name: str, settings: dict[str, Any], uris: list[str]) -> dict[str, Any]:
        """Attempts by URI, once all have ended; the ledger adds up."""
        await self.ask("PUT", f"/api/v1/runs/{name}", {"settings": {"robots": False, **settings}})
        await self.ask("POST", f"/requestqueue/{name}", uris)
        await until(lambda: self.ended(name), lambda count: count >= len(uris), seconds=60)
        found = {}
        for block in (await self.ask("GET", f"/requestqueue/{name}?limit=100"))["blocks"]:
            for request in block["requests"]:
                detail = await self.ask("GET", f"/api/v1/requests/{request['id']}")
                found[detail["request"]["uri"]] = {**detail["attempts"][-1], "id": request["id"]}
        assert set(found) == set(uris)
        return found

    async def ended(self, run: str) -> int:
        whole = await self.ask("GET", "/api/v1/ledger")
        assert whole["unaccounted"] == 0
        counts: dict[str, int] = (await self.ask("GET", f"/api/v1/runs/{run}"))["ledger"]
        return counts["done"] + counts["dead"]


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    place = Place(tmp_path)
    await place.open()
    yield place
    await assert_whole(place.center.center.services)
    await place.close()


async def test_an_agent_and_its_center_go_on(place: Place) -> None:
    """Fault 63, D7, D8: all attacks in one run; each has its reason, all others are done."""
    limits = {"processes": 16, "memory": 2**28, "time": 2.0}
    settings = {"downloader": "python", "code": {"source": ATTACKS, "limits": limits}}
    fine = [f"http://10.0.0.1/{n}" for n in range(50)]
    attacks = {f"http://10.0.0.1/{name}": reason for name, reason in REASONS.items()}
    found = await place.run("attacks", settings, [*fine, *attacks])
    assert [found[uri]["failure"] for uri in fine] == [""] * len(fine)
    for uri, (failure, words) in attacks.items():
        assert found[uri]["failure"] == failure, found[uri]
        assert words in found[uri]["detail"]
        assert found[uri]["elapsed_us"] > 0
    path = f"/api/v1/requests/{found[fine[7]]['id']}/body"
    assert await place.client.call("GET", path, None, bytes) == fine[7].encode()


async def test_what_is_wrong_is_not_stored(place: Place) -> None:
    """D1: Python and shell syntax, unsafe options and unknown kinds are refused at the door."""
    for settings, words in (
        ({"downloader": "python", "code": {"source": "def run(:"}}, "line 1"),
        ({"downloader": "shell", "code": {"source": "if true"}}, "the shell code"),
        ({"downloader": "curl", "curl": ["-o", "x"]}, "would write a file"),
        ({"downloader": "perl"}, "there is no downloader 'perl'"),
    ):
        with pytest.raises(InvalidInput) as caught:
            await place.ask("PUT", "/api/v1/runs/wrong", {"settings": settings})
        assert words in caught.value.detail
    assert (await place.ask("GET", "/api/v1/runs"))["items"] == []


async def test_code_does_not_outlive_an_agent_that_was_killed() -> None:
    """Fault 22, for agents that ran code: kill -9 leaves no process behind."""
    agent = await asyncio.create_subprocess_exec(sys.executable, "-c", AGENT, NAP)
    await until(lambda: sleeping() >= 2)
    agent.kill()
    await agent.wait()
    await until(lambda: not sleeping())


def sleeping() -> int:
    wanted = f"sleep\0{NAP}\0".encode()
    found = 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                found += (entry / "cmdline").read_bytes() == wanted
            except OSError:
                continue
    return found
