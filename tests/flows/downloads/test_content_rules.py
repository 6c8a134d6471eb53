"""Content rules on an agent (A5): real downloads, cut by a child process with limits."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from random import Random

import psutil
import pytest

from skep.archive.frames import WarcRecord, read_records, split_response
from skep.downloaders.egress_policy import EgressPolicy
from skep.downloaders.http import HttpDownloader, HttpKind
from skep.model.content_rules import ContentRules, ContentStep
from skep.model.request import Work
from skep.model.run import RunSettings
from skep.runtime.clock import SystemClock
from skep.spiders.driving.page_decoding import Unpacker
from skep.spiders.ports import Page
from skep.testing.polling import until
from skep.testing.servers.hostile_http import (
    HostileServer,
    fetch,
    fetch_all,
    repeats,
    says,
    silence,
)

HTML = [("Content-Type", "text/html; charset=utf-8")]
PAGE = "<html><h1>Ä title</h1><p>one</p><p>two</p>".encode() + b"<i>filler</i>" * 1000
#: Takes a Python regular expression longer than the world exists.
EVIL = b"<p>" + b"a" * 60 + b"!</p>"
Open = Callable[..., HttpDownloader]
Children = Callable[[], list[int]]


@pytest.fixture
def children() -> Children:
    """Lists the processes that follow content rules and were started by this test: others of
    this process may still be ending."""
    before = set(psutil.Process().children())

    def started() -> list[int]:
        found = set(psutil.Process().children()) - before
        return [one.pid for one in found if follows_content_rules(one)]

    return started


def follows_content_rules(process: psutil.Process) -> bool:
    try:
        return any("content_child" in word for word in process.cmdline())
    except psutil.Error:
        return False


@pytest.fixture
async def opened(children: Children) -> AsyncIterator[Open]:
    made: list[HttpDownloader] = []

    def open_one(*steps: ContentStep, time_limit: float = 10.0, **rules: object) -> HttpDownloader:
        kind = HttpKind(SystemClock(), Random(1), EgressPolicy(allow=("127.0.0.0/8",)))
        content = ContentRules(steps, **rules)  # type: ignore[arg-type]  # checked by msgspec
        made.append(kind.open("run", RunSettings(content=content, time_limit=time_limit)))
        return made[-1]

    yield open_one
    for downloader in made:
        await downloader.close()
    assert children() == []


@pytest.fixture
async def server() -> AsyncIterator[HostileServer]:
    async with HostileServer({"/page": says(PAGE, headers=HTML)}) as server:
        yield server


def record_of(frames: bytes) -> tuple[WarcRecord, bytes]:
    record = read_records(frames)[0]
    return record, split_response(record).body


async def test_a_page_is_cut_and_says_so(opened: Open, server: HostileServer) -> None:
    """A5, D8: what is left, the rules, and what the whole was; the spider sees it too."""
    downloader = opened(ContentStep(css="h1, p"))
    fetched = await fetch(downloader, Work(1, server.url("/page")))
    record, body = record_of(fetched.frames)
    assert body.decode() == "<h1>Ä title</h1>\n<p>one</p>\n<p>two</p>"
    assert record.headers["Skep-Original-Length"] == str(len(PAGE))
    outcome = fetched.outcome
    assert (outcome.failure, outcome.status, outcome.length) == ("", 200, len(fetched.frames))
    assert outcome.received > len(PAGE)
    assert downloader.active == 0
    page = Page(1, server.url("/page"), state="done", status=200, frames=fetched.frames)
    response = Unpacker().response(page)
    assert response.cut == "css=h1, p"
    assert response.css("p::text").getall() == ["one", "two"]
    assert response.text.startswith("<h1>Ä title")


async def test_many_pages_once_each(
    opened: Open, server: HostileServer, children: Children
) -> None:
    works = [Work(n, server.url(f"/page?n={n}")) for n in range(300)]
    results = await fetch_all(opened(ContentStep(css="h1::text")), works)
    assert [result.outcome.id for result in results] == list(range(300))
    assert {record_of(result.frames)[1].decode() for result in results} == {"Ä title"}
    assert 1 <= len(children()) <= 2


async def test_an_endless_pattern_costs_its_own_page_only(
    opened: Open, server: HostileServer
) -> None:
    """The event loop turns, other pages arrive, the page is kept for people to look at."""
    server.routes["/evil"] = says(EVIL, headers=HTML)
    downloader = opened(ContentStep(regex="<p>(?:a|a)+</p>|h1"), seconds=0.5, max_bytes=1000)
    works = [Work(n, server.url("/evil" if n == 5 else "/page")) for n in range(20)]
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0.01)
            turns += 1

    counting = asyncio.ensure_future(count())
    async with asyncio.timeout(20):
        results = await fetch_all(downloader, works)
    counting.cancel()
    assert turns > 20, "the loop must turn while the pattern is at work"
    evil = results.pop(5)
    assert (evil.outcome.failure, evil.outcome.status) == ("limit", 200)
    assert evil.outcome.detail == "the content rules took more than 0.5 s"
    assert record_of(evil.frames)[1] == EVIL
    assert {r.outcome.failure for r in results} == {""}
    assert {record_of(r.frames)[1] for r in results} == {b"h1\nh1"}


@pytest.mark.parametrize(
    ("step", "body"),
    [
        (ContentStep(xpath="//i[count(//i[count(//i) > 2]) > 1]"), b"<i>a</i>" * 3000),
        (ContentStep(jsonpath="$..*..*..*..*..*..*"), b'{"a":' * 60 + b"1" + b"}" * 60),
        (ContentStep(css="div"), b"<div>" * 200 + b"x" * 200_000),
    ],
    ids=["xpath", "jsonpath", "nested elements"],
)
async def test_other_endless_rules(
    step: ContentStep, body: bytes, opened: Open, server: HostileServer
) -> None:
    server.routes |= {"/evil": says(body, headers=HTML), "/small": says(b"<p>", headers=HTML)}
    downloader = opened(step, seconds=0.5)
    async with asyncio.timeout(20):
        evil = (await fetch(downloader, Work(1, server.url("/evil")))).outcome
        fine = (await fetch(downloader, Work(2, server.url("/small")))).outcome
    assert (evil.failure, bool(evil.detail)) == ("limit", True)
    assert fine.failure == ""


async def test_a_child_that_is_killed_is_replaced(
    opened: Open, server: HostileServer, children: Children
) -> None:
    downloader = opened(ContentStep(css="h1::text"))
    await fetch(downloader, Work(1, server.url("/page")))
    (child,) = children()
    os.kill(child, signal.SIGKILL)
    results = [await fetch(downloader, Work(n, server.url("/page"))) for n in (2, 3)]
    assert [r.outcome.failure for r in results] == ["", ""]
    assert {record_of(r.frames)[1].decode() for r in results} == {"Ä title"}


@pytest.mark.parametrize(
    ("unmatched", "failure", "kept"),
    [("nothing", "", b""), ("all", "", PAGE), ("fail", "content", PAGE)],
)
async def test_nothing_matches(
    unmatched: str, failure: str, kept: bytes, opened: Open, server: HostileServer
) -> None:
    downloader = opened(ContentStep(css="nav"), unmatched=unmatched)
    fetched = await fetch(downloader, Work(1, server.url("/page")))
    assert fetched.outcome.failure == failure
    assert record_of(fetched.frames)[1] == kept


async def test_answers_without_content_match_nothing_and_do_not_fail(
    opened: Open, server: HostileServer
) -> None:
    server.routes["/none"] = says(b"", 204)
    server.routes["/gone"] = says(b"gone", 410)
    downloader = opened(ContentStep(css="nav"), unmatched="fail")
    works = [Work(1, server.url("/none")), Work(3, server.url("/gone"))]
    none, gone = await fetch_all(downloader, works)
    assert none.outcome.failure == ""
    assert (gone.outcome.failure, record_of(gone.frames)[1]) == ("status", b"gone")


async def test_the_first_bytes_of_an_endless_body_are_all_that_is_read(
    opened: Open, server: HostileServer
) -> None:
    server.routes["/endless"] = repeats(b"HTTP/1.1 200 OK\r\n\r\n", b"z" * 65_536)
    fetched = await fetch(opened(ContentStep(first=1000)), Work(1, server.url("/endless")))
    record, body = record_of(fetched.frames)
    assert (fetched.outcome.failure, body) == ("", b"z" * 1000)
    assert record.headers["WARC-Truncated"] == "length"
    assert fetched.outcome.received < 2**20


async def test_close_gives_back_what_is_not_finished(
    opened: Open, server: HostileServer, children: Children
) -> None:
    server.routes["/evil"] = says(EVIL, headers=HTML)
    server.routes["/hang"] = silence
    downloader = opened(ContentStep(regex="<p>(?:a|a)+</p>"), seconds=60.0)
    works = [Work(n, server.url("/hang" if n == 9 else "/evil")) for n in range(10)]
    waiting = [asyncio.ensure_future(fetch(downloader, work)) for work in works]
    await until(lambda: len(children()) >= 2 and len(server.asked) >= 10, seconds=10)
    async with asyncio.timeout(10):
        await downloader.close()
    assert {(await each).outcome.failure for each in waiting} == {"lost"}
    assert downloader.active == 0
