"""A spider in a process of its own, as a person or a job starts it, beside a real center."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from skep.testing.grounds.centers import RunningCenter, running_center
from skep.testing.grounds.jobs import local_agent
from skep.testing.polling import until
from skep.testing.site import DemoSite

EXAMPLE = Path(__file__).parents[3] / "examples" / "demo_pages.py"
SECONDS = 60


@pytest.fixture
async def center(tmp_path: Path) -> AsyncIterator[RunningCenter]:
    flags = {"egress_allow": ["127.0.0.0/8"]}
    async with running_center(tmp_path / "data", **flags) as running, local_agent(running):
        yield running


async def started(center: Path, *arguments: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "skep.spiders", "--data", str(center), *arguments,
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip


async def ended(process: asyncio.subprocess.Process) -> tuple[int | None, str]:
    async with asyncio.timeout(SECONDS):
        _, errors = await process.communicate()
    return process.returncode, errors.decode()


def written(folder: Path, body: str) -> str:
    file = folder / "own_spider.py"
    file.write_text(
        "import skep\n\n\nclass Own(skep.Spider):\n    name = 'own'\n    " + body + "\n"
    )
    return str(file)


async def test_a_spider_runs_alone_in_a_terminal(center: RunningCenter) -> None:
    """R1: one command, with arguments."""
    async with DemoSite(pages=30) as site:
        process = await started(center.folder, str(EXAMPLE), "-a", f"start_urls={site.url}/")
        code, said = await ended(process)
    assert code == 0, said
    assert "finished: every request has ended" in said
    assert "31 pages, 30 items, 0 failed" in said
    assert (await center.ledger("demo-pages")).done == 31


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
async def test_after_a_signal_the_next_start_goes_on(
    center: RunningCenter, number: signal.Signals
) -> None:
    """R2: pause and continue, or kill -9: nothing is lost and nothing is counted twice."""
    async with DemoSite(pages=300, latency=0.05) as site:
        arguments = (str(EXAMPLE), "--run", "long", "-a", f"start_urls={site.url}/")
        process = await started(center.folder, *arguments)
        await until(lambda: sum(site.hits.values()) >= 60, seconds=SECONDS, step=0.01)
        process.send_signal(number)
        code, said = await ended(process)
        kind = (-9, False) if number is signal.SIGKILL else (0, True)
        assert (code, "paused: " in said) == kind, said
        site.latency = 0.0
        code, said = await ended(await started(center.folder, *arguments))
    assert (code, "finished: " in said) == (0, True), said
    assert (await center.ledger("long")).done == 301
    items = (await center.admin.get("/api/v1/runs/long/items?limit=10000")).json()["items"]
    assert len({item["data"]["url"] for item in items}) == len(items) == 300


async def test_a_second_signal_ends_a_process_whose_code_hangs(
    center: RunningCenter, tmp_path: Path
) -> None:
    """It dies of the signal, so that a center which watches it does not take it for a failure."""
    began = tmp_path / "began"
    body = f"""
    def parse(self, response):
        import pathlib, time
        pathlib.Path({str(began)!r}).touch()
        while True:
            time.sleep(0.01)"""
    async with DemoSite(pages=1) as site:
        arguments = (written(tmp_path, body), "-a", f"start_urls={site.url}/")
        process = await started(center.folder, *arguments)
        await until(began.exists, seconds=SECONDS)
        process.send_signal(signal.SIGTERM)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(process.wait()), 0.5)
        process.send_signal(signal.SIGTERM)
        code, said = await ended(process)
    assert code == -signal.SIGTERM, said


async def test_a_leak_ends_its_own_run_with_that_reason(
    center: RunningCenter, tmp_path: Path
) -> None:
    """The memory of a spider is its own affair."""
    body = """
    def parse(self, response):
        kept = []
        while True:
            kept.append(bytearray(2**22))"""
    async with DemoSite(pages=1) as site:
        spider = written(tmp_path, body)
        process = await started(
            center.folder, spider, "--memory", "700", "-a", f"start_urls={site.url}/"
        )
        code, said = await ended(process)
    assert code == 1, said
    assert "memory limit: " in said
    view = (await center.admin.get("/api/v1/runs/own")).json()
    assert view["run"]["state"] == "failed"
    assert view["run"]["reason"].startswith("memory limit: the callback for ")


async def test_an_endless_callback_is_stopped_under_the_fast_loop_too(
    center: RunningCenter, tmp_path: Path
) -> None:
    body = """settings = {"callback_seconds": 0.5}

    def parse(self, response):
        while True:
            pass"""
    async with DemoSite(pages=1) as site:
        process = await started(
            center.folder, written(tmp_path, body), "-a", f"start_urls={site.url}/"
        )
        code, said = await ended(process)
    assert (code, "callback time limit: " in said) == (1, True), said


async def test_the_token_is_not_in_the_environment_of_the_spider(
    center: RunningCenter, tmp_path: Path
) -> None:
    """No secrets in the environment of user code."""
    body = """
    def start(self):
        import os
        raise ValueError(f"found {[name for name in os.environ if 'TOKEN' in name]}")"""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "skep.spiders", written(tmp_path, body), "--center", center.url,
        env={"SKEP_TOKEN": center.admin.token, "PYTHONPATH": str(EXAMPLE.parents[1])},
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    code, said = await ended(process)
    assert (code, "found []" in said) == (1, True), said


async def test_what_is_wrong_is_said_in_one_line(tmp_path: Path) -> None:
    file = written(tmp_path, "def parse(self, response)")
    (tmp_path / "center.url").write_text("http://127.0.0.1:9")
    (tmp_path / "admin.token").write_text("x")
    code, said = await ended(await started(tmp_path, file))
    assert (code, said.count("\n")) == (2, 1)
    assert f"{file}:6: " in said
    missing = tmp_path / "nowhere"
    code, said = await ended(await started(missing, file))
    assert (code, "--center" in said) == (2, True)
