"""Requests of hosts with a pace inside an agent: none gets lost between gate and report."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from skep.agent.hosts.host_scheduler import HostScheduler
from skep.agent.hosts.robots import READ_BYTES, Robots, Text, read, robots_settings
from skep.agent.work.held_blocks import HeldBlock, HeldBlocks
from skep.agent.work.run_downloaders import RunDownloaders
from skep.downloaders.libcurl.host_queue import HostQueue
from skep.downloaders.ports import Fetched
from skep.model.block import BlockReport, Leased
from skep.model.content_rules import ContentRules
from skep.model.failures.failure_class import FailureClass
from skep.model.hosts.host import Pace, SiteNote
from skep.model.request import Outcome, Work
from skep.model.run import RunSettings
from skep.testing.clock import ManualClock

Done = Callable[[Fetched], None]


class Hand:
    """A downloader whose every answer is given by the test; it is its own kind."""

    name = "http"
    schemes: tuple[str, ...] = ("http",)

    def __init__(self) -> None:
        self.running: dict[int, tuple[Work, Done]] = {}
        self.opened: list[tuple[str, RunSettings]] = []
        self.paces: list[tuple[str, float]] = []

    def open(self, run: str, settings: RunSettings) -> Hand:
        self.opened.append((run, settings))
        return self

    @property
    def active(self) -> int:
        return len(self.running)

    def start(self, work: Work, done: Done) -> None:
        self.running[work.id] = (work, done)

    def pace(self, site: str, spacing: float) -> None:
        self.paces.append((site, spacing))

    async def close(self) -> None:
        self.running.clear()

    def end(self, one: int, status: int = 200, failure: str = "", began: float = 0.0) -> None:
        _, done = self.running.pop(one)
        done(Fetched(Outcome(one, failure, status, elapsed_us=10_000), began=began))


class Desk:
    """An agent's inner rooms around one clock."""

    def __init__(self, settings: RunSettings | None = None) -> None:
        self.clock = ManualClock()
        self.hand = Hand()
        self.alive = True
        self.holding = HeldBlocks(self.clock.monotonic)
        downloaders = RunDownloaders({"http": self.hand}, self.clock.monotonic)
        run = settings or RunSettings()
        self.robots = Robots()
        self.host_scheduler = HostScheduler(
            self.holding, downloaders, lambda _: run, lambda: self.alive, self.robots
        )

    def lease(self, count: int, pace: Pace, block: int = 1, token: int = 1) -> HeldBlock:
        works = [Work(one, f"http://{pace.host}/{one}") for one in range(1, count + 1)]
        site = self.holding.gate.learn(pace, self.clock.monotonic())
        return self.holding.add(Leased(block, token, "r", count, b""), works, {pace.host: site})

    def go(self, seconds: float = 0.0) -> list[int]:
        """What runs after this many seconds."""
        self.clock.advance(seconds)
        self.host_scheduler.admit(100)
        return sorted(self.hand.running)

    def reports(self) -> list[BlockReport]:
        return self.holding.take_due(self.clock.monotonic(), 1e9)

    def note(self) -> SiteNote:
        """The only note of the only report."""
        ((note,),) = [report.sites for report in self.reports()]
        return note


def test_a_report_lets_go_of_a_host_with_its_last_request() -> None:
    desk = Desk()
    block = desk.lease(2, Pace("a.example", 1.0, 4))
    assert desk.go() == [1]
    assert (block.gated, block.running, desk.holding.active) == (1, 1, 1)
    desk.hand.end(1)
    assert desk.reports() == []
    assert desk.go(1.0) == [2]
    desk.hand.end(2)
    desk.clock.advance(0.25)
    (report,) = desk.reports()
    assert report.final
    assert [outcome.id for outcome in report.outcomes] == [1, 2]
    (note,) = report.sites
    assert (note.requests, note.left, note.wait) == (2, True, 0.75)


def test_a_host_that_is_done_is_let_go_of_before_the_block_ends() -> None:
    """Others may wait for it, while the rest of the block waits for slower hosts."""
    desk = Desk()
    paces = [Pace("a.example", 0.0, 4), Pace("b.example", 60.0, 1)]
    sites = {pace.host: desk.holding.gate.learn(pace, 0.0) for pace in paces}
    works = [
        Work(n, f"http://{host}/{n}") for n, host in enumerate(["a.example"] + ["b.example"] * 3)
    ]
    desk.holding.add(Leased(1, 1, "r", 4, b""), works, sites)
    assert desk.go() == [0, 1]
    desk.hand.end(0)
    (report,) = desk.reports()
    assert not report.final
    assert [(note.host, note.left) for note in report.sites] == [("a.example", True)]


def test_hosts_without_a_pace_in_the_same_block_start_in_order() -> None:
    desk = Desk()
    site = desk.holding.gate.learn(Pace("a.example", 9.0, 1), 0.0)
    works = [Work(n, f"http://{'a' if n % 2 else 'z'}.example/{n}") for n in range(6)]
    block = desk.holding.add(Leased(1, 1, "r", 6, b""), works, {"a.example": site})
    batch = desk.holding.next_works(10)
    assert batch is not None
    assert [work.id for work in batch[1]] == [0, 2, 4]
    assert (block.gated, desk.go()) == (3, [1])


def test_nothing_starts_while_the_agent_may_be_taken_for_dead() -> None:
    desk = Desk()
    desk.lease(1, Pace("a.example", 1.0, 4))
    desk.alive = False
    assert desk.go(100.0) == []
    desk.alive = True
    assert desk.go() == [1]


@pytest.mark.parametrize("end", ["withdraw", "lose", "leased again"])
def test_whatever_ends_a_lease_empties_the_gate(end: str) -> None:
    """Give-back, loss and a newer lease: the requests wait nowhere else."""
    desk = Desk()
    block = desk.lease(5, Pace("a.example", 1.0, 4))
    desk.go()
    if end == "withdraw":
        desk.holding.withdraw("r")
    elif end == "lose":
        desk.holding.lose([block.held])
    else:
        desk.lease(5, Pace("a.example", 1.0, 4), token=2)
    assert block.gated == 0
    assert desk.holding.gate.waiting == (5 if end == "leased again" else 0)
    desk.hand.end(1)
    if end == "withdraw":
        (report,) = desk.reports()
        assert not report.final
        assert not report.sites[0].left
        desk.holding.settle(report, "stored")
        assert desk.holding.take_returns() == [block.held]
    elif end == "lose":
        assert (desk.holding.discarded, desk.reports()) == (1, [])
    assert desk.holding.active == 0
    # The distance to the last start is kept, whichever request comes next.
    assert desk.go(0.5) == []


def test_a_host_that_is_left_alone_ends_its_part_of_the_block() -> None:
    desk = Desk()
    block = desk.lease(4, Pace("a.example", 0.5, 2))
    assert (desk.go(), desk.go(0.5)) == ([1], [1, 2])
    desk.hand.end(1, 429, FailureClass.STATUS)
    note = desk.note()
    assert (note.trouble, note.deferred, note.left) == ("429", [3, 4], False)
    desk.holding.settle(BlockReport(1, 1, [], False), "stored")
    desk.hand.end(2, 429, FailureClass.STATUS)
    assert block.complete
    note = desk.note()
    assert (note.trouble, note.deferred, note.left, note.refused) == ("", [], True, 1)


def test_a_downloader_that_dies_over_a_request_keeps_the_block() -> None:
    desk = Desk()
    block = desk.lease(2, Pace("a.example", 0.0, 4))
    desk.go()
    desk.hand.end(1, 0, FailureClass.LOST)
    desk.hand.end(2)
    assert block.spoiled
    (report,) = desk.reports()
    assert not report.final
    assert not report.sites[0].left


def test_a_lost_robots_txt_defers_requests_and_fails_none() -> None:
    desk = Desk()
    desk.lease(2, Pace("a.example", 0.5, 4, robots=True))
    assert desk.go() == [-1]
    desk.hand.end(-1, 0, FailureClass.LOST)
    note = desk.note()
    assert (note.trouble, note.deferred, note.failed) == ("robots", [1, 2], 0)


def test_a_block_that_is_gone_when_robots_txt_comes_does_no_harm() -> None:
    desk = Desk()
    desk.lease(2, Pace("a.example", 0.5, 4, robots=True))
    assert desk.go() == [-1]
    desk.holding.withdraw()
    desk.hand.end(-1, 404, FailureClass.STATUS)
    assert desk.robots.rules_of("http://a.example:80", 1.0) is not None
    assert desk.holding.active == 0
    assert len(desk.holding.take_returns()) == 1


def test_while_robots_txt_is_on_its_way_nothing_else_is_asked() -> None:
    desk = Desk()
    desk.lease(3, Pace("a.example", 0.5, 4, robots=True))
    assert (desk.go(), desk.go(5.0)) == ([-1], [-1])
    desk.hand.end(-1, 404, FailureClass.STATUS)
    assert desk.go() == [1]


def test_everything_that_is_forbidden_ends_in_one_round() -> None:
    desk = Desk()
    desk.robots.keep("http://a.example:80", read(Text(b"User-agent: *\nDisallow: /")), 0.0)
    desk.lease(50, Pace("a.example", 5.0, 1, robots=True))
    assert desk.go() == []
    note = desk.note()
    assert (note.barred, note.failed, note.left, note.wait) == (50, 50, True, 0.0)


@pytest.mark.parametrize(
    "made_for_pages",
    [
        RunSettings(content=ContentRules(max_bytes=1)),
        RunSettings(body_limit=10),
        RunSettings(redirects=0),
    ],
)
def test_what_is_made_for_pages_does_not_touch_robots_txt(made_for_pages: RunSettings) -> None:
    """Content rules and the like would leave nothing of it, and allow everything."""
    desk = Desk(made_for_pages)
    desk.lease(1, Pace("a.example", 0.5, 4, robots=True))
    assert desk.go() == [-1]
    ((name, settings),) = desk.hand.opened
    assert (name, settings.content) == ("r robots.txt", None)
    assert settings.body_limit >= READ_BYTES
    assert settings.redirects >= 5
    desk.hand.end(-1, 404, FailureClass.STATUS)
    assert desk.go(1.0) == [1]
    assert desk.hand.opened[1] == ("r", made_for_pages)


def test_a_run_with_code_of_its_own_asks_for_robots_txt_by_plain_http() -> None:
    assert robots_settings(RunSettings(downloader="python")) == RunSettings()
    assert robots_settings(RunSettings()) == RunSettings()


def test_a_downloader_that_follows_redirects_is_told_the_distance() -> None:
    desk = Desk()
    desk.lease(1, Pace("a.example", 0.5, 4))
    desk.go()
    assert desk.hand.paces == [("a.example", 0.5)]


def test_the_gate_of_a_run_keeps_the_distance_of_a_host_for_redirects_too() -> None:
    gate: HostQueue[str] = HostQueue(at_once=5, delay=0.0)
    gate.pace("a", 10.0)
    gate.offer("a", "a0")
    gate.offer("b", "b0")
    gate.offer("b", "b1")
    assert [gate.take(100.0) for _ in range(4)] == ["a0", "b0", "b1", None]
    gate.leave("a", 101.0)
    gate.offer("a", "redirect", first=True)
    assert (gate.take(109.0), gate.next_due(), gate.take(110.0)) == (None, 110.0, "redirect")
