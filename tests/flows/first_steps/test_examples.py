"""The examples run as they stand."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from random import Random

from skep.embed.embedded import LocalAgent, LocalCenter, with_loopback
from skep.runtime.clock import SystemClock
from skep.settings import load
from skep.testing.grounds.record_checks import assert_whole
from skep.testing.site import DemoSite

EXAMPLES = Path(__file__).parents[3] / "examples"


async def output_of(name: str, *arguments: str) -> str:
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(EXAMPLES / name), *arguments, stdout=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(30):
        output, _ = await process.communicate()
    assert process.returncode == 0
    return output.decode()


async def test_the_http_api_from_any_language(tmp_path: Path) -> None:
    """C8: open a run, put requests in, read finished ones back by block."""
    clock, rng = SystemClock(), Random()
    settings = with_loopback(load(flags={"data": str(tmp_path), "center.port": 0}))
    center = LocalCenter(settings, clock, rng)
    agent = LocalAgent(center, clock, rng)
    await center.start()
    try:
        await agent.start()
        async with DemoSite(pages=2) as site:
            pages = [f"{site.url}/page/0", f"{site.url}/page/1", f"{site.url}/status/404"]
            token = str(tmp_path / "admin.token")
            said = await output_of("http_api.py", center.url, token, *pages)
            again = await output_of("http_api.py", center.url, token, *pages)
        await assert_whole(center.center.services)
    finally:
        await agent.stop()
        await center.stop()
    lines = said.splitlines()
    assert lines[0] == "3 new, 0 known"
    assert sorted(line.split()[0] for line in lines[1:]) == ["200", "200", "404"]
    assert again.splitlines() == ["0 new, 3 known"], "what was collected is not shown again"


async def test_a_center_inside_a_program(tmp_path: Path) -> None:
    async with DemoSite(pages=20) as site:
        said = await output_of("embedded.py", str(tmp_path), *site.page_urls())
    assert said.startswith("20 accepted = ")
    assert " 20 done" in said


def test_the_settings_file_is_valid() -> None:
    settings = load(EXAMPLES / "skep.toml")
    assert settings.center.auth, "it binds to every address"
