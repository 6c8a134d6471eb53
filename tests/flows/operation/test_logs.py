"""Logs of everything that runs, and `skep logs`: from the code that writes to the terminal (R4)."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from skep.logs.line_format import make_entry
from skep.testing.grounds.centers import RunningCenter, running_center
from skep.testing.grounds.jobs import fired, local_agent
from skep.testing.polling import until
from skep.testing.site import DemoSite

SECONDS = 60.0
QUICK: dict[str, Any] = {
    "egress_allow": ["127.0.0.0/8"],
    "jobs_keep_every": 0.05,
    "jobs_restart_first": 0.05,
}
SPIDER = """
import logging
import skep


class Talker(skep.Spider):
    name = "talker"
    url: str = ""

    def start(self):
        yield f"{self.url}/page/1"

    def parse(self, response):
        print("printed by the spider")
        logging.getLogger("mine").warning("warned with password=hunter2")
        yield {"url": response.url}
"""
GENERATOR = """
import sys


def generate():
    print("generator speaks", file=sys.stderr)
    yield "http://127.0.0.1:9/"
"""
DOWNLOADER = """
import sys


def run(uri):
    print("downloader speaks", file=sys.stderr)
    return b"body"
"""


@pytest.fixture
async def center(tmp_path: Path) -> AsyncIterator[RunningCenter]:
    folder = tmp_path / "jobs"
    folder.mkdir()
    (folder / "talker.py").write_text(SPIDER)
    async with (
        running_center(
            tmp_path / "data",
            **QUICK,
            jobs_folder=str(folder),
            logs_export=str(tmp_path / "lines.jsonl"),
        ) as running,
        local_agent(running),
    ):
        yield running


async def lines(center: RunningCenter, asked: str) -> list[dict[str, Any]]:
    found = await center.admin.get(f"/api/v1/logs?filter={asked}")
    items: list[dict[str, Any]] = found.json()["lines"]
    return items


async def line(center: RunningCenter, asked: str) -> dict[str, Any]:
    found: list[dict[str, Any]] = await until(
        lambda: lines(center, asked), bool, seconds=SECONDS, what=asked
    )
    return found[0]


async def started(center: RunningCenter, name: str, **document: Any) -> str:
    answer = await center.admin.put(f"/api/v1/jobs/{name}", {"name": name, **document})
    assert answer.status == 200, answer.content
    return await fired(center, name)


async def test_the_output_of_a_spider_is_stored_with_level_and_run(center: RunningCenter) -> None:
    async with DemoSite(pages=3) as site:
        spider = {"path": "talker.py", "arguments": {"url": site.url}}
        run = await started(center, "talk", spider=spider)
        printed = await line(center, f"run:{run}+printed")
        warned = await line(center, f"run:{run}+level:warning+warned")
    assert (printed["kind"], printed["source"], printed["level"]) == ("spider", "talk", 20)
    assert warned["fields"]["logger"] == "mine"
    assert "hunter2" not in warned["text"]


async def test_the_output_of_a_generator_is_stored(center: RunningCenter) -> None:
    generator = {"kind": "python", "code": GENERATOR}
    run = await started(center, "made", generators=[generator])
    found = await line(center, "generator")
    assert (found["text"], found["kind"], found["run"]) == ("generator speaks", "generator", run)


async def test_the_output_of_downloader_code_is_stored(center: RunningCenter) -> None:
    document = {
        "downloader": {"kind": "python", "code": DOWNLOADER},
        "requests": ["http://a.test/"],
    }
    run = await started(center, "code", **document)
    found = await line(center, "downloader+speaks")
    assert (found["text"], found["kind"], found["run"]) == ("downloader speaks", "downloader", run)
    assert found["agent"]
    assert (await line(center, "job:code"))["text"] == "downloader speaks"


async def test_every_stored_line_is_exported_as_json(center: RunningCenter, tmp_path: Path) -> None:
    """R7: with all that is known of it, and the stored copy stays."""
    center.services.logs.put(make_entry(1.0, 40, "a line of the center", {"page": 3}))
    target = tmp_path / "lines.jsonl"
    text = await until(
        lambda: target.read_text() if target.exists() else "",
        lambda text: "a line of the center" in text,
        seconds=SECONDS,
    )
    found = [json.loads(one) for one in text.splitlines()]
    (exported,) = [one for one in found if one["text"] == "a line of the center"]
    assert (exported["level"], exported["kind"], exported["fields"]) == (40, "center", {"page": 3})
    assert (await line(center, '"a+line+of+the+center"'))["offset"] == exported["offset"]


def skep(center: RunningCenter, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "skep", "logs", "--data", str(center.folder), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


async def test_the_command_searches_shows_context_and_exports(
    center: RunningCenter, asking: Callable[..., Any]
) -> None:
    for number in range(5):
        level = 40 if number == 2 else 20
        center.services.logs.put(make_entry(1000.0 + number, level, f"step {number}"))
    await line(center, '"step+4"')
    found = await asking(center, "step", "--source", "center")
    assert [text.split(": ")[-1] for text in found.stdout.splitlines()] == [
        f"step {n}" for n in range(5)
    ]
    around = await asking(center, "step", "--level", "error", "--context", "1")
    assert [text[:2] for text in around.stdout.splitlines()] == ["  ", "> ", "  "]
    every = await asking(center, "--all", "--json", "line:step")
    assert [json.loads(text)["text"] for text in every.stdout.splitlines()] == [
        f"step {n}" for n in reversed(range(5))
    ]
    budgets = await asking(center, "--budgets")
    assert "(centers)" in budgets.stdout
    wrong = await asking(center, "leel:x")
    assert wrong.returncode == 2
    assert "use `level`" in wrong.stderr


@pytest.fixture
def asking() -> Callable[..., Any]:
    async def ask(center: RunningCenter, *words: str) -> subprocess.CompletedProcess[str]:
        return await asyncio.to_thread(skep, center, *words)

    return ask


async def test_budgets_delete_the_oldest_lines(center: RunningCenter) -> None:
    """R4: by age; lines of a run that was deleted stay until then."""
    logs = center.services.logs
    logs.put(make_entry(1000.0, 20, "old line"))
    assert await line(center, '"old+line"')
    await logs.keep_budget(center.services.metrics)
    assert await lines(center, '"old+line"') == []
    assert await center.metric("skep_log_bytes") >= 0
