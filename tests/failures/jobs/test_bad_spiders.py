"""Spiders that leak, loop without end or raise: each harms its own run, which says why (R5)."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path

import pytest

from skep.testing.processes import QUICK, CenterProcess
from skep.testing.site import DemoSite

pytestmark = pytest.mark.xdist_group("cli")

PAGES = 100
PATIENCE = 90.0
SPIDERS = """
import time

import skep


class Pages(skep.Spider):
    url: str = ""
    settings = {"block_size": 10, "host_concurrency": 8, "callback_error_limit": 5}

    def start(self):
        yield f"{self.url}/page/0"

    def parse(self, response):
        yield {"url": response.url, "title": response.title}
        yield from response.follow_all()


class Endless(Pages):
    settings = {"callback_seconds": 1}

    def parse(self, response):
        while True:
            time.sleep(0.01)


class Deaf(Endless):
    def parse(self, response):
        while True:
            try:
                time.sleep(0.01)
            except Exception:
                continue


class Leaking(Pages):
    settings = {"memory_limit": 2 * 2**30}

    def parse(self, response):
        kept = []
        while True:
            kept.append(bytes(2**26))  # never touched: address space, and no memory


class Hoarding(Pages):
    settings = {"memory_limit": 2 * 2**30}
    kept = []

    def parse(self, response):
        size = 2**26
        while size > 64:
            try:
                self.kept.append(bytes(size))
            except MemoryError:  # every corner is filled, and all that follows has none left
                size //= 2
        yield from super().parse(response)


class Raising(Pages):
    def start(self):
        for number in range(10):
            yield f"{self.url}/page/{number}"

    def parse(self, response):
        raise ValueError(f"nothing to see on {response.url}")


class Unready(Pages):
    def start(self):
        raise OSError("no list today")
"""
REASONS = {
    "Endless": "callback time limit: the callback for ",
    "Deaf": "callback time limit: the callback for ",
    "Leaking": "memory limit: ",
    "Hoarding": "memory limit: ",
    "Raising": "too many callback errors: callbacks raised 5 times, last ValueError: nothing",
    "Unready": "start failed: start() raised OSError: no list today",
}


async def spider(folder: Path, *arguments: str) -> Process:
    """`skep run` in a folder; what it says is in a file there."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SKEP_")}
    with (folder / "said.log").open("ab") as said:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "skep", "run", *arguments),
            cwd=folder,
            env={**kept, **QUICK},
            stdout=PIPE,
            stderr=said,
        )


async def test_a_bad_spider_ends_its_own_run_only(tmp_path: Path) -> None:
    """R1, R5: endless loops, leaks and errors cost their own run, which says why, in its
    process and at the center; another spider of the same center notices nothing."""
    place = tmp_path / "center"
    with CenterProcess(place, with_agent=True) as center:
        async with DemoSite(pages=PAGES) as site:
            asked = ["-a", f"url={site.url}", "--json", "--center", center.url]
            asked += ["--token-file", str(place / "admin.token")]
            for name in (*REASONS, "Pages"):
                (tmp_path / name).mkdir()
                (tmp_path / name / "spiders.py").write_text(SPIDERS)
            processes = {
                name: await spider(tmp_path / name, f"spiders.py:{name}", "--run", name, *asked)
                for name in (*REASONS, "Pages")
            }
            outputs = {
                name: (await asyncio.wait_for(process.communicate(), PATIENCE))[0]
                for name, process in processes.items()
            }
        # It answers, however long a busy machine takes; one look at /readyz has a second only.
        assert center.running
        runs = {name: await shown(center, place, name) for name in processes}
    for name, reason in REASONS.items():
        said = (tmp_path / name / "said.log").read_text()
        assert processes[name].returncode == 1, f"{name}: {said}"
        summary = json.loads(outputs[name])
        assert f"{summary['reason']}: {summary['sentence']}".startswith(reason), f"{name}: {said}"
        assert runs[name]["state"] == "failed", f"{name}: {said}"
        assert runs[name]["reason"].startswith(reason)
    good = json.loads(outputs["Pages"])
    assert (processes["Pages"].returncode, good["pages"], good["items"]) == (0, PAGES, PAGES)
    assert runs["Pages"]["state"] == "finished"


async def shown(center: CenterProcess, place: Path, run: str) -> dict[str, str]:
    """What `skep runs show` says of a run."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "skep", "runs", "show", run, "--json"),
        *("--center", center.url, "--token-file", str(place / "admin.token")),
        stdout=PIPE,
    )
    output, _ = await process.communicate()
    found: dict[str, str] = json.loads(output)["run"]
    return found


HANGS = """
import asyncio
from skep.runtime.clock import SystemClock
from skep.spiders.driving.watchdog import watchdog

async def main():
    async with watchdog({seconds}, SystemClock()):
        await asyncio.sleep(0.5)
        {code}
    print("through")

asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("seconds", "code", "ends"),
    [
        (0.4, "sum(range(10**12))", (1, b"", b"Timeout")),
        (0.4, "await asyncio.sleep(1)", (0, b"through\n", b"")),
        (0, "sum(range(10**7))", (0, b"through\n", b"")),
    ],
)
async def test_code_that_no_signal_reaches_ends_its_process(
    seconds: float, code: str, ends: tuple[int, bytes, bytes]
) -> None:
    """R5: inside a C library an alarm is not heard; the watchdog says where it hangs."""
    program = HANGS.format(seconds=seconds, code=code)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, stdout=PIPE, stderr=PIPE
    )
    output, errors = await asyncio.wait_for(process.communicate(), PATIENCE)
    assert (process.returncode, output, errors[:7]) == ends
