"""Spiders that are killed with kill -9 (R1, faults 22, 23)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path

import msgspec
import psutil
import pytest

from skep.store.sql.store import SqlStore
from skep.testing.polling import until
from skep.testing.processes import QUICK
from skep.testing.site import DemoSite

pytestmark = pytest.mark.xdist_group("cli")

PAGES = 600
PATIENCE = 60.0
RUN = "crawl"
SPIDERS = """
import skep


class Pages(skep.Spider):
    url: str = ""
    settings = {"block_size": 10, "host_concurrency": 8, "callback_error_limit": 5}

    def start(self):
        yield f"{self.url}/page/0"

    def parse(self, response):
        yield {"url": response.url, "title": response.title}
        yield from response.follow_all()
"""


def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SKEP_")}
    return {**kept, **QUICK}


async def spider(folder: Path, *arguments: str) -> Process:
    """`skep run` in a folder; what it says is appended to a file there."""
    (folder / "spiders.py").write_text(SPIDERS)
    with (folder / "said.log").open("ab") as said:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "skep", "run", *arguments),
            cwd=folder,
            env=environment(),
            stdout=PIPE,
            stderr=said,
        )


def center_of(process: Process) -> psutil.Process | None:
    """The child that `skep run` brought along."""
    children = psutil.Process(process.pid).children()
    return children[0] if children else None


async def kept(folder: Path) -> tuple[list[str], int, int]:
    """What the store itself says: URLs of items, requests accepted and done, row by row."""
    store = SqlStore(f"sqlite:///{folder / 'skep-data' / 'skep.db'}")
    await store.open()
    try:
        rows = await store.checkpoints.items(RUN, 0, 10 * PAGES)
        read, audit = await store.ledgers.read(RUN), await store.ledgers.audit(RUN)
    finally:
        await store.close()
    assert read == audit
    assert audit.unaccounted == 0
    urls = [msgspec.msgpack.decode(row.data)["url"] for row in rows]
    return urls, audit.accepted, audit.done


async def pages_asked(site: DemoSite, count: int) -> None:
    await until(lambda: len(site.hits) >= count, seconds=PATIENCE, step=0.01, what=f"{count} pages")


async def test_a_crawl_survives_six_kills(tmp_path: Path) -> None:
    """R1, fault 23: kill -9 of the spider, of its center and agent, of both, in turn: each
    page is an item once, in the store and in the file."""
    lives = repeated = 0
    async with DemoSite(pages=PAGES, latency=0.03) as site:
        asked = ["spiders.py:Pages", "-a", f"url={site.url}", "-o", "items.jsonl", "--json"]
        process = await spider(tmp_path, *asked, "--run", RUN)
        for number, victim in enumerate(["spider", "center", "both"] * 2, 1):
            goal = number * PAGES // 8
            await pages_asked(site, goal)
            center = center_of(process)
            assert center is not None
            if victim != "center":
                process.send_signal(signal.SIGKILL)
                await process.wait()
                lives += 1
            if victim != "spider":
                # After its spider: one that sees its center die would start another.
                with contextlib.suppress(psutil.NoSuchProcess):
                    center.kill()
            if victim != "center":
                resume = RUN if lives % 2 else ""
                process = await spider(tmp_path, *asked, *["--resume", resume][: 1 + bool(resume)])
        output, _ = await asyncio.wait_for(process.communicate(), PATIENCE)
        repeated = sum(site.hits.values()) - len(site.hits)
    said = (tmp_path / "said.log").read_text()
    assert process.returncode == 0, said
    summary = json.loads(output)
    assert summary["reason"] == "finished"
    assert said.count("restarting it") == 2, "the center came back by itself"
    urls, accepted, done = await kept(tmp_path)
    pages = sorted(f"{site.url}/page/{number}" for number in range(PAGES))
    assert (accepted, done) == (PAGES, PAGES)
    assert sorted(urls) == pages
    lines = (tmp_path / "items.jsonl").read_text().splitlines()
    assert [json.loads(line)["url"] for line in lines] == urls, "the file has the store's order"
    print(f"kills=6 lost=0 doubled=0 fetched_again={repeated}")  # noqa: T201 - for `pytest -s`


async def test_who_shared_a_center_takes_it_over(tmp_path: Path) -> None:
    """Two spiders in one folder: the one that brought the center is killed, and the other
    goes on with a center of its own at the same address."""
    async with DemoSite(pages=PAGES, latency=0.03) as site:
        asked = ["spiders.py:Pages", "-a", f"url={site.url}", "--json"]
        owner = await spider(tmp_path, *asked, "--run", "owner")
        await until(lambda: len(site.hits) > 20, seconds=PATIENCE)
        guest = await spider(tmp_path, *asked, "--run", RUN, "-o", "items.jsonl")
        await until(
            lambda: f"run {RUN} · " in (tmp_path / "said.log").read_text(), seconds=PATIENCE
        )
        assert center_of(guest) is None
        owner.send_signal(signal.SIGKILL)
        await owner.wait()
        output, _ = await asyncio.wait_for(guest.communicate(), PATIENCE)
    said = (tmp_path / "said.log").read_text()
    assert guest.returncode == 0, said
    assert json.loads(output)["items"] == PAGES
    urls, accepted, done = await kept(tmp_path)
    assert (accepted, done, len(set(urls)), len(urls)) == (PAGES,) * 4
    assert len((tmp_path / "items.jsonl").read_text().splitlines()) == PAGES
