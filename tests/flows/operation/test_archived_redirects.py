"""Redirects and digests in the archive: what other tools check, and replay by URL."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
import zstandard

import skep
from skep.archive.records import HOP, read_records, split_request, split_response
from skep.archive.segment_scan import found_pages
from skep.model.content_rules import ContentRules, ContentStep
from skep.model.request import Work
from skep.runtime.clock import SystemClock
from skep.spiders.driving.engine import SpiderEngine
from skep.spiders.driving.http_queue import HttpQueue
from skep.spiders.driving.page_decoding import Unpacker
from skep.spiders.ports import Page
from skep.testing.grounds.centers import RunningCenter, running_center
from skep.testing.grounds.downloaders import PAGE, Open, body_of
from skep.testing.grounds.jobs import local_agent
from skep.testing.servers.hostile_http import HostileServer, fetch, redirects, says
from skep.wire.client import CenterClient
from skep.wire.client.api import CenterApi


@pytest.fixture
async def chain() -> AsyncIterator[HostileServer]:
    """`/start` leads over two redirects to `/page`."""
    routes = {
        "/start": redirects("/middle?n=1", 301, b"moved"),
        "/middle": redirects("/page", 302),
        "/page": says(PAGE),
    }
    async with HostileServer(routes) as server:
        yield server


async def test_each_redirect_has_its_records(opened: Open, chain: HostileServer) -> None:
    """H6: behind the page, one response and one request for each URL that was asked."""
    fetched = await fetch(opened(), Work(1, chain.url("/start")))
    records = read_records(fetched.frames)
    assert fetched.outcome.length == len(fetched.frames)
    assert [(r.type, r.headers.get(HOP, "")) for r in records] == [
        ("response", ""), ("request", ""),
        ("response", "1"), ("request", "1"),
        ("response", "2"), ("request", "2"),
    ]  # fmt: skip
    asked = [chain.url(path) for path in ("/page", "/start", "/middle?n=1")]
    assert [r.headers["WARC-Target-URI"] for r in records[::2]] == asked
    assert [r.headers["WARC-IP-Address"] for r in records] == ["127.0.0.1"] * 6
    answers = [split_response(r) for r in records[::2]]
    assert [(a.status, a.body) for a in answers] == [(200, PAGE), (301, b"moved"), (302, b"")]
    assert ("Location", "/middle?n=1") in answers[1].headers
    assert [split_request(r).target for r in records[1::2]] == ["/page", "/start", "/middle?n=1"]
    assert body_of(fetched) == PAGE


async def test_redirects_of_a_run_with_content_rules(opened: Open, chain: HostileServer) -> None:
    """H6: rules cut the page; the redirects that led to it stay in the archive."""
    rules = ContentRules((ContentStep(first=10),))
    fetched = await fetch(opened(content=rules), Work(1, chain.url("/start")))
    records = read_records(fetched.frames)
    assert fetched.outcome.length == len(fetched.frames)
    assert split_response(records[0]).body == PAGE[:10]
    assert [r.headers.get(HOP) for r in records[::2]] == [None, "1", "2"]


async def test_redirects_that_lead_nowhere(opened: Open, chain: HostileServer) -> None:
    """H6: the last answer is the one that counts; without any answer nothing is kept."""
    chain.routes["/loop"] = redirects("/loop")
    looped = await fetch(opened(redirects=2), Work(1, chain.url("/loop")))
    kinds = [r.headers.get(HOP) for r in read_records(looped.frames)[::2]]
    assert (looped.outcome.failure, kinds) == ("content", [None, "1", "2"])
    chain.routes["/gone"] = redirects("http://127.0.0.1:1/")
    gone = await fetch(opened(), Work(2, chain.url("/gone")))
    assert (gone.outcome.status, gone.outcome.length, gone.frames) == (0, 0, b"")


async def test_a_response_knows_its_redirects(opened: Open, chain: HostileServer) -> None:
    """H6: URL, status and headers of each, in their order."""
    fetched = await fetch(opened(), Work(1, chain.url("/start")))
    final = fetched.outcome.final_uri
    page = Page(1, chain.url("/start"), "done", 200, final_uri=final, frames=fetched.frames)
    response = Unpacker().response(page)
    assert (response.url, response.body) == (chain.url("/page"), PAGE)
    assert [(hop.url, hop.status) for hop in response.history] == [
        (chain.url("/start"), 301),
        (chain.url("/middle?n=1"), 302),
    ]
    assert response.history[0].headers["location"] == "/middle?n=1"
    assert skep.Response("http://h/").history == []


class Follower(skep.Spider):
    """Asks for a URL that redirects."""

    name = "follower"

    def parse(self, response: skep.Response) -> Iterator[Any]:
        yield {"url": response.url, "history": [hop.url for hop in response.history]}


async def crawled(center: RunningCenter, url: str) -> None:
    spider = Follower()
    spider.start_urls = (url,)
    clock, rng = SystemClock(), Random(4)
    async with CenterClient([center.url], center.admin.token, clock, rng) as client:
        async with asyncio.timeout(60):
            await SpiderEngine(
                spider, HttpQueue(CenterApi(client.transport), "r", clock, rng), clock
            ).run()


async def test_a_segment_passes_the_check_of_warcio_and_replays(
    tmp_path: Path, chain: HostileServer
) -> None:
    """H6: center, agent and spider; then `warcio check`, and an index by URL as replay tools
    make it: the URL that was asked for leads to the page."""
    flags: dict[str, Any] = {"egress_allow": ["127.0.0.0/8"]}
    async with running_center(tmp_path / "data", **flags) as center, local_agent(center):
        await crawled(center, chain.url("/start"))
        items = (await center.admin.get("/api/v1/runs/r/items")).json()["items"]
        asked = [chain.url("/start"), chain.url("/middle?n=1")]
        assert [item["data"] for item in items] == [{"url": chain.url("/page"), "history": asked}]
        body = await center.admin.get("/api/v1/requests/1/body")
        assert body.content == PAGE
    (segment,) = (tmp_path / "data").rglob("*.warc.zst")
    (page,) = [one for one in found_pages(segment) if one.uri == chain.url("/page")]
    assert page.offset + page.length == segment.stat().st_size, "redirects belong to the page"
    plain = tmp_path / "segment.warc"
    unpacker = zstandard.ZstdDecompressor()
    with segment.open("rb") as source, plain.open("wb") as target:
        target.write(unpacker.stream_reader(source, read_across_frames=True).read())
    assert unchecked(plain) == {"warcinfo", "request"}
    assert replayed(plain, chain.url("/start")) == [301, 302, 200]


def unchecked(path: Path) -> set[str]:
    """Types of the records without a digest; the digest of every other record is right."""
    lines = warcio("check", "-v", str(path)).splitlines()[1:]
    told = dict(zip([line.split()[-1] for line in lines[::2]], lines[1::2], strict=True))
    assert {line.strip() for line in lines[1::2]} == {"digest pass", "no digest to check"}
    return {kind for kind, said in told.items() if "pass" not in said}


def replayed(path: Path, url: str) -> list[int]:
    """Statuses on the way from a URL to a page, by an index of URLs."""
    fields = "warc-type,warc-target-uri,http:status,http:location"
    lines = map(json.loads, warcio("index", "-f", fields, str(path)).splitlines())
    index = {line["warc-target-uri"]: line for line in lines if line["warc-type"] == "response"}
    statuses = []
    while url:
        found = index[url]
        statuses.append(int(found["http:status"]))
        location = found.get("http:location", "")
        url = f"{url[: url.index('/', 8)]}{location}" if location else ""
    return statuses


def warcio(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "warcio.cli", *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout
