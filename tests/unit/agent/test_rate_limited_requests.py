"""The gate of an agent: distance, number at once, what answers teach, and rests. No I/O."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from skep.agent.hosts.host_notes import HostNotes
from skep.agent.hosts.rate_limited_requests import (
    DELAY_CAP,
    SOON,
    RateLimitedHost,
    RateLimitedRequests,
    host_in,
)
from skep.model.failures.failure_class import FailureClass
from skep.model.hosts.host import Pace, SiteNote
from skep.model.request import Outcome

HOST = "example.org"


def gate_with(
    count: int, spacing: float = 0.5, concurrency: int = 4, wait: float = 0.0
) -> tuple[RateLimitedRequests[int], RateLimitedHost[int]]:
    gate: RateLimitedRequests[int] = RateLimitedRequests()
    site = gate.learn(Pace(HOST, spacing, concurrency, wait), 0.0)
    for item in range(count):
        gate.offer(site, item)
    return gate, site


def start(gate: RateLimitedRequests[int], now: float) -> list[int]:
    """Everything that may start now."""
    started = []
    while site := gate.due(now):
        started.append(gate.take(site))
        gate.begin(site, now)
        gate.settle(site)
    return started


def answer(status: int = 200, failure: str = "", seconds: float = 0.01) -> Outcome:
    return Outcome(1, failure, status, elapsed_us=int(seconds * 1e6))


@pytest.mark.parametrize(
    ("uri", "site"),
    [
        ("http://example.org/a", "example.org"),
        ("https://www.Example.org:8443?q", "example.org"),
        ("http://user:pass@example.org:80/@x", "example.org"),
        ("http://[2001:db8::1]:8080/", "[2001:db8::1]"),
        ("http://127.0.1.7:9/", "127.0.1.7"),
        ("toy://x/1", "x"),
        ("nonsense", ""),
    ],
)
def test_a_uri_belongs_to_the_site_that_the_center_knows(uri: str, site: str) -> None:
    assert host_in(uri) == site


def test_starts_keep_their_distance_and_the_first_waits_as_it_was_told() -> None:
    gate, _ = gate_with(4, wait=1.0)
    assert start(gate, 0.9) == []
    assert gate.next_due() == 1.0
    assert start(gate, 1.0) == [0]
    assert start(gate, 1.49) == []
    assert start(gate, 1.5) == [1]
    # A late start does not allow faster ones afterwards.
    assert start(gate, 9.0) == [2]
    assert start(gate, 9.1) == []


def test_no_more_than_the_concurrency_run_at_once() -> None:
    gate, site = gate_with(5, spacing=0.0, concurrency=2)
    assert start(gate, 0.0) == [0, 1]
    assert gate.next_due() is None
    gate.leave(site, 0.0)
    assert start(gate, 0.0) == [2]


def test_hosts_do_not_wait_for_each_other() -> None:
    gate, slow = gate_with(3, spacing=60.0)
    quick = gate.learn(Pace("quick.example", 0.1, 4), 0.0)
    for item in (10, 11):
        gate.offer(quick, item)
    assert start(gate, 0.0) == [0, 10]
    assert start(gate, 0.1) == [11]
    assert len(slow.waiting) == 2


def test_the_distance_counts_from_the_last_hop() -> None:
    """A redirect to the same host is a start too."""
    gate, site = gate_with(2)
    assert start(gate, 0.0) == [0]
    gate.leave(site, 0.45)
    assert start(gate, 0.5) == []
    assert start(gate, 0.95) == [1]


@pytest.mark.parametrize("seed", range(20))
def test_no_window_of_one_second_ever_holds_more_than_the_rate(seed: int) -> None:
    """Seeded walks: whatever answers do, and whenever the state is checked, two starts of a host
    are never closer than its rate limit."""
    rng = Random(seed)
    gate, site = gate_with(0, spacing=0.525, concurrency=rng.randint(1, 6))
    now, running, item = 0.0, 0, 0
    starts: list[float] = []
    for _ in range(2000):
        now += rng.expovariate(8)
        if rng.random() < 0.5:
            gate.offer(site, item)
            item += 1
        if running and rng.random() < 0.5:
            gate.leave(site, starts[-1])
            gate.hear(site, answer(seconds=rng.random()))
            running -= 1
        if rng.random() < 0.02:
            gate.learn(Pace(HOST, 0.525, site.concurrency, wait=rng.random()), now)
        fresh = start(gate, now)
        assert len(fresh) <= 1
        starts += [now] * len(fresh)
        running += len(fresh)
        assert running <= site.concurrency
    assert len(starts) > 100
    assert all(later - former >= 0.525 for former, later in pairwise(starts))


def test_what_waits_is_counted_as_work_only_as_far_as_it_can_start_soon() -> None:
    """A host with a long queue and a slow pace must not look like plenty of work."""
    gate, site = gate_with(100, spacing=0.25)
    assert (gate.waiting, gate.ripe) == (100, SOON / 0.25)
    slow = gate.learn(Pace("slow.example", 30.0, 1), 0.0)
    gate.offer(slow, 1)
    gate.offer(slow, 2)
    assert (gate.waiting, gate.ripe) == (102, 5)
    gate.rest(site)
    assert (gate.waiting, gate.ripe) == (2, 1)


def test_slow_answers_teach_a_delay_and_quick_ones_take_it_back() -> None:
    gate, site = gate_with(0)
    for _ in range(30):
        gate.hear(site, answer(seconds=3.0))
    assert site.spacing == pytest.approx(3.0, rel=0.05)
    for _ in range(60):
        gate.hear(site, answer(seconds=0.01))
    assert site.spacing == 0.5


def test_a_host_without_a_rate_is_not_slowed_by_its_latency() -> None:
    gate, site = gate_with(0, spacing=0.0)
    for _ in range(30):
        gate.hear(site, answer(seconds=3.0))
    assert site.spacing == 0.0


def test_refusals_double_the_delay_up_to_a_cap() -> None:
    gate, site = gate_with(0)
    seen = []
    for _ in range(8):
        gate.hear(site, answer(429, FailureClass.STATUS))
        seen.append(site.spacing)
    assert seen == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, DELAY_CAP, DELAY_CAP]


def test_without_adaptation_nothing_is_learnt() -> None:
    gate: RateLimitedRequests[int] = RateLimitedRequests(adaptive=False)
    site = gate.learn(Pace(HOST, 0.5, 1, delay=9.0), 0.0)
    gate.hear(site, answer(503, FailureClass.STATUS))
    gate.hear(site, answer(seconds=30))
    assert site.spacing == 0.5


@pytest.mark.parametrize("status", [429, 503])
def test_a_refusal_is_trouble_once_until_the_next_lease(status: int) -> None:
    gate, site = gate_with(3)
    assert gate.hear(site, answer(status, FailureClass.STATUS)) == str(status)
    assert gate.rest(site) == [0, 1, 2]
    assert start(gate, 100.0) == []
    assert gate.hear(site, answer(status, FailureClass.STATUS)) == ""
    gate.learn(Pace(HOST, 0.5, 4), 100.0)
    assert gate.hear(site, answer(status, FailureClass.STATUS)) == str(status)


def test_a_status_that_the_run_accepts_is_not_a_refusal() -> None:
    gate, site = gate_with(0)
    assert gate.hear(site, answer(503)) == ""
    assert site.delay < 1


def test_failures_in_a_row_open_the_breaker() -> None:
    gate, site = gate_with(0)
    bad = [
        answer(0, FailureClass.NETWORK),
        answer(0, FailureClass.TIMEOUT),
        answer(500, FailureClass.STATUS),
        answer(0, FailureClass.NETWORK),
    ]
    assert [gate.hear(site, one) for one in bad] == [""] * 4
    assert gate.hear(site, answer(404, FailureClass.STATUS)) == ""
    assert [gate.hear(site, one) for one in bad] == [""] * 4
    assert gate.hear(site, answer(502, FailureClass.STATUS)) == "failing"


@pytest.mark.parametrize("strikes", [0, 2])
def test_one_failed_probe_is_enough(strikes: int) -> None:
    """Here the host rested before, or the center says that it did elsewhere."""
    gate, site = gate_with(0)
    if not strikes:
        gate.rest(site)
    gate.learn(Pace(HOST, 0.5, 4, strikes=strikes), 0.0)
    assert gate.hear(site, answer(0, FailureClass.NETWORK)) == "failing"
    gate.learn(Pace(HOST, 0.5, 4, strikes=strikes), 0.0)
    gate.hear(site, answer())
    assert gate.hear(site, answer(0, FailureClass.NETWORK)) == ""


def test_an_answer_of_another_host_says_nothing_about_this_one() -> None:
    gate, site = gate_with(0)
    elsewhere = Outcome(1, FailureClass.STATUS, 503, final_uri="http://other.example/busy")
    assert gate.hear(site, elsewhere) == ""
    within = Outcome(1, FailureClass.STATUS, 503, final_uri="https://www.example.org/busy")
    assert gate.hear(site, within) == "503"


def test_items_of_a_lost_block_leave_the_gate() -> None:
    gate, _ = gate_with(6, spacing=0.0, concurrency=9)
    gate.drop(lambda item: item % 2 == 0)
    assert gate.waiting == 3
    assert start(gate, 0.0) == [1, 3, 5]


def test_a_crawl_delay_counts_up_to_its_cap() -> None:
    gate, site = gate_with(2)
    gate.heed(site, 7.0)
    assert (site.spacing, start(gate, 0.0), site.wait(1.0)) == (7.0, [0], 6.0)
    gate.heed(site, 1e9)
    assert site.spacing == 300.0
    gate.heed(site, 0.0)
    assert site.spacing == 0.5


def test_idle_hosts_are_forgotten_but_not_before_their_distance_is_kept() -> None:
    gate: RateLimitedRequests[int] = RateLimitedRequests()
    for number in range(5000):
        site = gate.learn(Pace(f"{number}.example", 10.0, 1), 0.0)
        if number == 7:
            gate.offer(site, 1)
            assert start(gate, 0.0) == [1]
            gate.leave(site, 0.0)
    assert len(gate._sites) < 4200
    assert gate.learn(Pace("7.example", 10.0, 1), 1.0).wait(1.0) == 9.0


def test_notes_count_outcomes_by_site_and_begin_anew() -> None:
    notes = HostNotes()
    notes.count("www.example.org", Outcome(1, status=200, elapsed_us=5, received=7))
    notes.count("example.org", Outcome(2, "status", 429, elapsed_us=1, received=2))
    notes.count("2001:db8::1", Outcome(3, "network"))
    assert sorted(notes.take(), key=lambda note: note.host) == [
        SiteNote("[2001:db8::1]", requests=1, failed=1),
        SiteNote("example.org", requests=2, failed=1, refused=1, elapsed_us=6, received=9),
    ]
    assert not notes
    assert notes.take() == []
