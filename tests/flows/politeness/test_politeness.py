"""Politeness on the agent's side: a real agent and real servers, measured at the servers.

The center is a double, so that each pace is exactly what a test says.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from itertools import pairwise
from pathlib import Path
from random import Random

import msgspec
import pytest

from skep.agent.app import Agent
from skep.downloaders.registry import kinds
from skep.errors import CenterUnreachable
from skep.model.block import BlockReport
from skep.model.failures.failure_class import FailureClass
from skep.model.hosts.host import Pace, SiteNote
from skep.model.request import Outcome, Work
from skep.model.run import RunSettings
from skep.runtime.clock import SystemClock
from skep.settings import AgentSettings, EgressSettings
from skep.testing.doubles.center import CenterDouble, center_double
from skep.testing.doubles.toy_agent import running_agent
from skep.testing.polling import until
from skep.testing.servers.recording_sites import Ask, Recorder, Reply, most_in_a_second
from skep.wire.messages import Command

LOOPBACK = EgressSettings(allow=("127.0.0.0/8",))
FAST = AgentSettings(concurrency=8, report_every=0.1, lease_wait=1.0, drain_seconds=1.0)
ONE, TWO = "127.0.1.1", "127.0.1.2"

Start = Callable[..., AbstractAsyncContextManager[Agent]]


@pytest.fixture
async def center() -> AsyncIterator[CenterDouble]:
    async with center_double() as double:
        yield double


@pytest.fixture
async def web() -> AsyncIterator[Recorder]:
    async with Recorder(3) as recorder:
        yield recorder


@pytest.fixture
def start(center: CenterDouble, tmp_path: Path) -> Start:
    def begin(settings: AgentSettings = FAST) -> AbstractAsyncContextManager[Agent]:
        offered = kinds(SystemClock(), Random(3), LOOPBACK)
        return running_agent([center.url], center.token, tmp_path, offered, settings)

    return begin


def works(web: Recorder, host: str, count: int, first: int = 1, path: str = "/p") -> list[Work]:
    return [Work(one, web.url(host, f"{path}/{one}")) for one in range(first, first + count)]


def keeps_distance(web: Recorder, host: str, spacing: float) -> None:
    """As exactly as a server can tell that shares a busy machine: a request may be noticed
    late, so that the next seems to come early; their mean has no such excuse."""
    starts = web.starts(host)[host]
    gaps = [later - former for former, later in pairwise(starts)]
    assert min(gaps) > spacing / 2
    assert sum(gaps) / len(gaps) > spacing * 0.9


def total(center: CenterDouble, host: str = ONE) -> SiteNote:
    """All notes about a host, added up."""
    found = SiteNote(host)
    for note in center.notes():
        if note.host == host:
            for name in ("requests", "failed", "refused", "barred", "elapsed_us", "received"):
                setattr(found, name, getattr(found, name) + getattr(note, name))
            found.deferred += note.deferred
            found.left, found.wait, found.delay = note.left, note.wait, note.delay
            found.crawl_delay, found.cool = note.crawl_delay, note.cool or found.cool
            found.trouble = note.trouble or found.trouble
    return found


def outcome_of(center: CenterDouble, request: int) -> Outcome:
    return next(one for one in center.outcomes() if one.id == request)


async def test_two_starts_keep_the_distance_that_the_center_asks_for(
    center: CenterDouble, web: Recorder, start: Start
) -> None:
    """Two hosts in one block, side by side; the note lets go of each and says when it may
    be asked again."""
    center.sites = [Pace(ONE, 0.2, 4), Pace(TWO, 0.15, 4)]
    center.add("r", [*works(web, ONE, 6), *works(web, TWO, 6, first=7)])
    async with start():
        await center.until(lambda: center.blocks[1].ended)
    keeps_distance(web, ONE, 0.2)
    keeps_distance(web, TWO, 0.15)
    assert web.starts(TWO)[TWO][0] < web.starts(ONE)[ONE][1]
    for host, spacing in ((ONE, 0.2), (TWO, 0.15)):
        note = total(center, host)
        assert (note.requests, note.failed, note.left) == (6, 0, True)
        assert 0 < note.wait <= spacing
        assert note.elapsed_us > 6 * 10_000


async def test_no_more_downloads_at_once_than_the_center_allows(
    center: CenterDouble, web: Recorder, start: Start
) -> None:
    center.sites = [Pace(ONE, 0.0, 2)]
    center.add("r", works(web, ONE, 30))
    async with start():
        await center.until(lambda: center.blocks[1].ended)
    assert web.most[ONE] == 2


async def test_a_slow_host_does_not_keep_an_agent_from_other_work(
    center: CenterDouble, web: Recorder, start: Start
) -> None:
    """What waits in the gate uses up neither the agent's concurrency nor its appetite."""
    center.sites = [Pace(ONE, 30.0, 1)]
    center.add("r", works(web, ONE, 100))
    for block in range(20):
        center.add("r", works(web, TWO, 10, first=1000 + 10 * block))
    async with start() as agent:
        await center.until(lambda: len(center.stored) >= 201)
        assert agent.holding.gate.waiting == 99
        assert len(web.starts(ONE)[ONE]) == 1
    assert {held.block for back in center.returned for held in back.blocks} == {1}


async def test_hosts_without_a_pace_are_counted_and_nothing_more(
    center: CenterDouble, web: Recorder, start: Start
) -> None:
    center.add("r", works(web, ONE, 50))
    async with start():
        await center.until(lambda: center.blocks[1].ended)
    note = total(center)
    assert (note.requests, note.failed, note.left, note.wait) == (50, 0, False, 0.0)
    assert note.received > 50 * 20
    assert note.elapsed_us > 50 * 10_000


async def test_redirects_to_the_same_host_are_starts_too(
    center: CenterDouble, web: Recorder, start: Start
) -> None:
    def answer(ask: Ask) -> Reply:
        if ask.path.startswith("/p"):
            return Reply(status=302, headers={"Location": f"/other{ask.path}"}, wait=0.0)
        return Reply(wait=0.0)

    web.answer = answer
    center.sites = [Pace(ONE, 0.15, 4)]
    center.add("r", works(web, ONE, 4))
    async with start():
        await center.until(lambda: center.blocks[1].ended)
    assert len(web.asks) == 8
    keeps_distance(web, ONE, 0.15)


@pytest.mark.parametrize(("status", "asked"), [(429, 7.0), (503, None)])
async def test_a_refusal_puts_off_everything_that_waits(
    center: CenterDouble, web: Recorder, start: Start, status: int, asked: float | None
) -> None:
    """The refused request failed; the others were not tried and are not counted."""
    headers = {"Retry-After": str(int(asked))} if asked else {}
    web.answer = lambda _: Reply(status=status, headers=headers)
    center.sites = [Pace(ONE, 0.2, 1), Pace(TWO, 0.0, 4)]
    center.add("r", works(web, ONE, 8))
    async with start() as agent:
        await center.until(lambda: center.blocks[1].ended)
        assert agent.holding.gate.waiting == 0
    assert len(web.asks) == 1
    note = total(center)
    assert (note.trouble, note.cool, note.refused) == (str(status), asked, 1)
    assert (note.deferred, note.left) == (list(range(2, 9)), True)
    assert note.delay >= 0.4
    assert [one.id for one in center.outcomes()] == [1]


async def test_failures_in_a_row_let_the_host_rest(
    center: CenterDouble, web: Recorder, start: Start
) -> None:
    web.answer = lambda _: None
    center.sites = [Pace(ONE, 0.02, 1)]
    center.add("r", works(web, ONE, 20))
    async with start():
        await center.until(lambda: center.blocks[1].ended)
    note = total(center)
    assert (note.trouble, note.failed, len(note.deferred)) == ("failing", 5, 15)


def speaks(robots: Reply, after: float = 0.0) -> Callable[[Ask], Reply]:
    return lambda ask: robots if ask.path == "/robots.txt" else Reply(wait=after)


async def test_robots_txt_is_asked_once_and_obeyed(
    center: CenterDouble, web: Recorder, start: Start
) -> None:
    """It counts as a start, for each origin; what it forbids fails as `robots`."""
    web.answer = speaks(Reply(b"User-agent: *\nDisallow: /private\nCrawl-delay: 0.2\n"))
    center.sites = [Pace(ONE, 0.05, 4, robots=True)]
    center.add("r", [*works(web, ONE, 3), *works(web, ONE, 2, first=4, path="/private")])
    async with start():
        await center.until(lambda: center.blocks[1].ended)
    assert web.paths() == ["/robots.txt", "/p/1", "/p/2", "/p/3"]
    keeps_distance(web, ONE, 0.2)
    barred = outcome_of(center, 4)
    assert (barred.failure, barred.status) == (FailureClass.ROBOTS, 0)
    assert "/robots.txt does not allow it to Skep" in barred.detail
    note = total(center)
    assert (note.requests, note.failed, note.barred) == (5, 2, 2)
    assert (note.crawl_delay, note.left) == (0.2, True)


async def test_each_port_of_a_host_has_its_own_robots_txt(
    center: CenterDouble, web: Recorder, start: Start
) -> None:
    async with Recorder(1) as other:
        web.answer = speaks(Reply(b"User-agent: *\nDisallow: /\n"))
        center.sites = [Pace(ONE, 0.02, 1, robots=True)]
        center.add("r", [*works(web, ONE, 2), *works(other, ONE, 2, first=3)])
        async with start():
            await center.until(lambda: center.blocks[1].ended)
        assert web.paths() == ["/robots.txt"]
        assert other.paths() == ["/robots.txt", "/p/3", "/p/4"]


async def test_the_name_in_the_run_s_user_agent_is_the_one_that_counts(
    center: CenterDouble, web: Recorder, start: Start
) -> None:
    web.answer = speaks(Reply(b"User-agent: findbot\nDisallow: /p\n"))
    center.sites = [Pace(ONE, 0.02, 1, robots=True)]
    run = RunSettings(headers={"User-Agent": "FindBot/3.0 (+http://find.example)"})
    center.add("find", works(web, ONE, 1), run)
    center.add("other", works(web, ONE, 1, first=2))
    async with start():
        await center.until(lambda: center.open_requests == 0)
    assert [outcome_of(center, one).failure for one in (1, 2)] == [FailureClass.ROBOTS, ""]


async def test_a_robots_txt_behind_a_redirect_counts_for_who_was_asked(
    center: CenterDouble, web: Recorder, start: Start
) -> None:
    def answer(ask: Ask) -> Reply:
        if ask.path == "/robots.txt" and ask.host == ONE:
            return Reply(status=301, headers={"Location": web.url(TWO, "/robots.txt")})
        return Reply(b"User-agent: *\nDisallow: /p/2\n")

    web.answer = answer
    center.sites = [Pace(ONE, 0.02, 1, robots=True)]
    center.add("r", works(web, ONE, 3))
    async with start():
        await center.until(lambda: center.blocks[1].ended)
    assert web.paths(ONE) == ["/robots.txt", "/p/1", "/p/3"]


async def test_a_huge_robots_txt_is_applied_and_delays_no_other_host(
    center: CenterDouble, web: Recorder, start: Start
) -> None:
    rules = b"".join(b"Disallow: /x%d/*.html$\n" % number for number in range(60_000))
    web.answer = speaks(Reply(b"User-agent: *\nDisallow: /p/2\n" + rules))
    center.sites = [Pace(ONE, 0.02, 1, robots=True)]
    center.add("r", works(web, ONE, 3))
    async with start():
        await center.until(lambda: center.blocks[1].ended)
    assert web.paths() == ["/robots.txt", "/p/1", "/p/3"]


async def test_without_robots_txt_everything_is_allowed(
    center: CenterDouble, web: Recorder, start: Start
) -> None:
    web.answer = speaks(Reply(b"Disallow: /", status=404))
    center.sites = [Pace(ONE, 0.02, 1, robots=True)]
    center.add("r", works(web, ONE, 3))
    async with start():
        await center.until(lambda: center.blocks[1].ended)
    assert web.paths() == ["/robots.txt", "/p/1", "/p/2", "/p/3"]


@pytest.mark.parametrize("status", [0, 500])
async def test_a_host_whose_robots_txt_fails_is_left_alone(
    center: CenterDouble, web: Recorder, start: Start, status: int
) -> None:
    """H2: every request waits, none fails, no page is asked for; the note says what went wrong."""
    web.answer = lambda _: Reply(status=status) if status else None
    center.sites = [Pace(ONE, 0.02, 1, robots=True)]
    center.add("r", works(web, ONE, 5))
    async with start():
        await center.until(lambda: center.blocks[1].ended)
    assert set(web.paths()) == {"/robots.txt"}
    note = total(center)
    assert (note.trouble, note.deferred, note.failed) == ("robots", [1, 2, 3, 4, 5], 0)
    (told,) = [one for one in center.notes() if one.failure]
    assert told.failure == (FailureClass.STATUS if status else FailureClass.NETWORK)
    assert "robots.txt could not be fetched" in told.detail
    assert not told.gone


async def test_a_host_that_was_given_up_fails_its_requests_together(
    center: CenterDouble, web: Recorder, start: Start
) -> None:
    """H3: the center has had enough; nothing is sent, and every request says why."""
    center.sites = [Pace(ONE, 0.5, 1, robots=True, failure="timeout", detail="robots.txt: late")]
    center.add("r", works(web, ONE, 5))
    async with start():
        await center.until(lambda: center.blocks[1].ended)
    assert web.paths() == []
    assert {(one.failure, one.detail) for one in center.outcomes()} == {
        (FailureClass.TIMEOUT, "robots.txt: late")
    }
    assert len(list(center.outcomes())) == 5


async def test_what_waits_in_the_gate_goes_back_with_a_pause_and_with_a_drain(
    center: CenterDouble, web: Recorder, start: Start
) -> None:
    """The part that was done is reported, nothing is lost, and no host is let go of."""
    center.sites = [Pace(ONE, 0.3, 1)]
    center.add("r", works(web, ONE, 10))
    async with start() as agent:
        await until(lambda: len(web.asks) == 2)
        await center.push(Command("pause", "r"))
        await center.until(lambda: bool(center.returned))
        await center.until(lambda: center.blocks[1].token == 2)
        await until(lambda: len(web.asks) == 4)
        assert agent.holding.gate.waiting > 0
    assert len(center.returned) >= 2
    assert center.blocks[1].agent == ""
    assert sorted(center.stored) == [1, 2, 3, 4]
    assert not any(note.left for note in center.notes())
    keeps_distance(web, ONE, 0.3)


async def test_a_block_that_the_center_took_away_leaves_the_gate(
    center: CenterDouble, web: Recorder, start: Start
) -> None:
    center.sites = [Pace(ONE, 0.2, 1)]
    center.add("r", works(web, ONE, 10))
    async with start() as agent:
        await until(lambda: len(web.asks) == 2)
        center.lost = {1}
        await until(lambda: agent.holding.lost == 1)
        assert (agent.holding.gate.waiting, agent.holding.blocks) == (0, 0)
    assert len(web.asks) <= 3


async def test_an_agent_that_no_center_answers_asks_no_host_with_a_pace(
    center: CenterDouble, web: Recorder, start: Start
) -> None:
    """Before a center can take it for dead and give its hosts to another (`alive_after`),
    it stops; hosts without a pace are downloaded on. When it is heard again it goes on."""
    center.alive_after = 1.0
    center.sites = [Pace(ONE, 0.05, 1)]
    center.add("r", works(web, ONE, 200))
    center.add("r", works(web, TWO, 400, first=1000))
    web.answer = lambda ask: Reply(wait=0.1 if ask.host == TWO else 0.0)
    clock = SystemClock()
    async with start():
        await until(lambda: len(web.starts(ONE).get(ONE, ())) == 5)
        center.fail("heartbeat", CenterUnreachable("cut off"), times=100_000)
        cut = clock.monotonic()
        await until(lambda: web.asks[-1].at > cut + 2.0)
        center._faults.clear()
        back = clock.monotonic()
        await until(lambda: web.starts(ONE)[ONE][-1] > back)
    starts = [at for at in web.starts(ONE)[ONE] if cut < at < back]
    assert starts, "it should go on while it is known to be alive"
    assert max(starts) < cut + 1.0
    assert [at for at in web.starts(TWO)[TWO] if cut + 1.0 < at < back]


async def test_notes_of_an_outage_come_with_their_reports(
    center: CenterDouble, web: Recorder, start: Start
) -> None:
    """They lie in the outbox with them, and are sent when a center answers."""
    center.sites = [Pace(ONE, 0.02, 2)]
    center.add("r", works(web, ONE, 20))
    center.fail("block", CenterUnreachable("cut off"), times=1000)
    async with start() as agent:
        await until(lambda: agent.outbox.results > 0)
        center.heal("block")
        await center.until(lambda: center.blocks[1].ended, seconds=40)
    note = total(center)
    assert (note.requests, note.left) == (20, True)


def test_notes_travel_with_a_report_and_old_reports_can_be_read() -> None:
    note = SiteNote("example.org", requests=100, elapsed_us=5_000_000, received=1_000_000)
    report = BlockReport(1, 1, [], True, b"", [note])
    data = msgspec.msgpack.encode(report)
    assert msgspec.msgpack.decode(data, type=BlockReport) == report
    old = msgspec.msgpack.encode((1, 1, [], True, b""))
    assert msgspec.msgpack.decode(old, type=BlockReport).sites == []


def test_a_window_of_one_second_is_counted_at_its_fullest() -> None:
    assert most_in_a_second([0.0, 0.5, 1.0, 1.5]) == 2
    assert most_in_a_second([5.0, 0.0, 5.1, 5.99]) == 3
    assert most_in_a_second([]) == 0
