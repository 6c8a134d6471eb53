"""How a host is treated, from settings, rules and what was learnt (politeness)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.model.hosts.host import MARGIN, Pace, SiteRule, is_own, site_of
from skep.model.hosts.politeness import HostPoliteness, Politeness
from skep.model.run import RunSettings
from skep.settings import SiteSettings

NOW = 1000.0
USUAL = RunSettings()
MANNERS = Politeness(SiteSettings(rate=2.0, concurrency=4, window=10.0, crawl_delay_cap=60.0))
HOST, OWN = "example.org", "127.0.0.1"


def pace(host: str = HOST, run: RunSettings = USUAL, **facts: Any) -> Pace:
    found = MANNERS.pace(HostPoliteness(host, **facts), run, NOW)
    assert found is not None
    return found


def test_a_public_host_has_the_default_pace() -> None:
    assert pace() == Pace(HOST, MARGIN / 2, 4, 0.0, robots=True)


@pytest.mark.parametrize("host", [OWN, "[::1]", "10.1.2.3", "192.168.0.9", "localhost"])
def test_an_address_of_ones_own_has_none(host: str) -> None:
    assert is_own(host)
    assert MANNERS.pace(HostPoliteness(host), USUAL, NOW) is None


@pytest.mark.parametrize(
    ("facts", "run"),
    [
        ({"rule": SiteRule(rate=1.0)}, USUAL),
        ({"rule": SiteRule(concurrency=1)}, USUAL),
        ({"rule": SiteRule(robots=True)}, USUAL),
        ({"crawl_delay": 1.0}, USUAL),
        ({"cooling_until": NOW + 1}, USUAL),
        ({}, RunSettings(host_delay=0.5)),
    ],
)
def test_until_a_rule_asks_for_it(facts: dict[str, Any], run: RunSettings) -> None:
    assert MANNERS.pace(HostPoliteness(OWN, **facts), run, NOW) is not None


def test_the_slowest_wish_decides() -> None:
    assert pace(rule=SiteRule(rate=0.5)).spacing == pytest.approx(2.1)
    assert pace(rule=SiteRule(rate=0.0)).spacing == 0.0
    assert pace(crawl_delay=7.0).spacing == 7.0
    assert pace(crawl_delay=700.0).spacing == 60.0
    assert pace(crawl_delay=7.0, rule=SiteRule(robots=False)).spacing == MARGIN / 2
    assert pace(delay=9.0).spacing == 9.0
    assert pace(run=RunSettings(host_delay=8.0)).spacing == 8.0
    still = Politeness(SiteSettings(adaptive=False)).pace(
        HostPoliteness(HOST, delay=9.0), USUAL, NOW
    )
    assert still is not None
    assert (still.spacing, still.delay) == (MARGIN / 2, 0.0)


def test_the_smallest_concurrency_decides() -> None:
    assert pace(rule=SiteRule(concurrency=9)).concurrency == 9
    assert pace(rule=SiteRule(concurrency=900)).concurrency == USUAL.host_concurrency
    assert pace(run=RunSettings(host_concurrency=1)).concurrency == 1
    assert pace(OWN, rule=SiteRule(rate=9.0)).concurrency == USUAL.host_concurrency


def test_robots_is_asked_where_all_settings_agree() -> None:
    assert not pace(run=RunSettings(robots=False)).robots
    assert not pace(rule=SiteRule(robots=False)).robots
    assert not pace(OWN, rule=SiteRule(rate=1.0)).robots
    assert pace(OWN, rule=SiteRule(robots=True)).robots
    assert not pace(OWN, RunSettings(robots=False), rule=SiteRule(robots=True)).robots


def test_a_window_is_ten_seconds_of_work_and_a_probe_is_one_request() -> None:
    assert MANNERS.window(pace(), 100) == 19
    assert MANNERS.window(pace(), 7) == 7
    assert MANNERS.window(pace(delay=30.0), 100) == 1
    assert MANNERS.window(pace(rule=SiteRule(rate=0.0)), 100) == 100
    assert MANNERS.window(pace(strikes=1), 100) == 1


def test_rests_double_up_to_the_cap() -> None:
    assert [MANNERS.rest(n, None) for n in (1, 2, 3, 9, 10_000)] == [30, 60, 120, 3600, 3600]
    assert (MANNERS.rest(5, 7.0), MANNERS.rest(1, 1e9)) == (7.0, 86_400.0)


@given(
    st.floats(0, 100),
    st.none() | st.floats(0, 10_000),
    st.floats(0, 3600),
    st.floats(0, 600),
    st.integers(1, 1000),
)
def test_no_window_ever_asks_for_more_than_the_rate(
    default: float, rate: float | None, host_delay: float, delay: float, size: int
) -> None:
    politeness = Politeness(SiteSettings(rate=default, window=10.0))
    site = HostPoliteness(HOST, SiteRule(rate=rate), delay=delay)
    found = politeness.pace(site, RunSettings(host_delay=host_delay), NOW)
    assert found is not None
    allowed = default if rate is None else rate
    if allowed:
        assert found.spacing * allowed >= 1
    assert found.spacing >= max(host_delay, delay)
    assert 1 <= politeness.window(found, size) <= size


def test_one_site_has_one_name() -> None:
    assert site_of("WWW.Example.org.") == "example.org"
    assert site_of("www.org") == "www.org"
    assert site_of("[::1]") == "[::1]"


@pytest.mark.parametrize("downloader", ["python", "shell", "enterprise"])
def test_code_is_limited_by_a_rule_alone(downloader: str) -> None:
    """E9: no rate and no robots.txt by default; a rule set by hand applies."""
    politeness, run = Politeness(), RunSettings(downloader=downloader)
    assert politeness.pace(HostPoliteness("example.org"), run, NOW) is None
    ruled = politeness.pace(
        HostPoliteness("example.org", SiteRule(rate=1.0, robots=True)), run, NOW
    )
    assert ruled is not None
    assert (ruled.spacing, ruled.robots) == (MARGIN, True)


def test_schemes_of_plug_ins_are_limited_by_a_rule_alone() -> None:
    """E9: as for loopback and private addresses."""
    assert Politeness().pace(HostPoliteness("de"), RunSettings(), NOW, own=True) is None
    assert Politeness().pace(HostPoliteness("de", SiteRule(rate=1.0)), RunSettings(), NOW, own=True)


def test_hosts_that_refuse_or_have_no_address_are_given_up_sooner() -> None:
    """H3: two tries for robots.txt with short pauses, where others have three."""
    politeness = Politeness()
    assert [politeness.enough_probes(tries, gone=True) for tries in (1, 2)] == [False, True]
    assert [politeness.enough_probes(tries, gone=False) for tries in (2, 3)] == [False, True]
    assert politeness.probe_rest(1, None, gone=True) < politeness.probe_rest(1, None, gone=False)
