"""Exits and sessions without any network: parsing, turns, rests, rules, masks. Seeded."""

from __future__ import annotations

import time
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.downloaders.egress_policy import EgressPolicy
from skep.downloaders.pattern import compiled, searched
from skep.downloaders.proxies import (
    Proxy,
    ProxyFailure,
    ProxyPool,
    ProxyRoute,
    Said,
    login_refused,
    parse_proxy,
    proxy_failure,
)
from skep.downloaders.sessions import NAMED_LIMIT, SessionPool
from skep.errors import InvalidInput
from skep.jobs.request_validation import Validator, fingerprint_of
from skep.model.proxies import ExitRules, SessionRules, masked_proxy, session_rules
from skep.model.request import NewRequest
from skep.model.run import AskedSettings, Run, RunSettings, without_secrets
from skep.model.states import RunState


def pool(count: int, rest: float = 10.0, seed: int = 1) -> ProxyPool:
    proxies = [Proxy("http", f"p{number}:8080") for number in range(count)]
    return ProxyPool(proxies, rest, Random(seed))


def places(found: list[ProxyRoute | None]) -> list[str]:
    return [str(one.proxy) if one and one.proxy else "" for one in found]


# --- proxies ---


@pytest.mark.parametrize(
    ("url", "proxy"),
    [
        ("http://h:8080", Proxy("http", "h:8080")),
        ("http://u:p@h:1/", Proxy("http", "h:1", ("u", "p"))),
        ("socks5://u%40x:p%3A%2F@h:1", Proxy("socks5", "h:1", ("u@x", "p:/"))),
        ("socks5h://u@[::1]:1080", Proxy("socks5h", "[::1]:1080", ("u", ""))),
    ],
)
def test_proxies_are_taken_apart(url: str, proxy: Proxy) -> None:
    assert parse_proxy(url) == proxy


@pytest.mark.parametrize(
    "url",
    [
        "", "h:8080", "ftp://u:s3cret@h:1", "https://u:s3cret@h:1", "http://u:s3cret@h",
        "http://u:s3cret@:80", "http://u:s3cret@h:0", "http://u:s3cret@h:99999",
        "http://u:s3cret@h:1/path", "http://u:s3cret@h:1?x", "http://u:s3/cret@h:1",
        "http://u%3Ax:s3cret@h:1", "http://u:s3cret%00@h:1", "http://u:s3cret @h:1",
        f"http://u:s3cret{'x' * 300}@h:1", "http://***@h:1", "http://[u:s3cret@h:1",
        "http://u:s3cret@h:1\n",
    ],
)  # fmt: skip
def test_a_wrong_proxy_is_told_without_what_was_written(url: str) -> None:
    """A6: it may be a password."""
    with pytest.raises(InvalidInput, match=r"exits\.proxies\[3\]") as caught:
        parse_proxy(url, "exits.proxies[3]")
    assert "s3cret" not in caught.value.detail
    assert "s3/cret" not in caught.value.detail


@given(user=st.text(min_size=1, max_size=10), password=st.text(max_size=10))
def test_nothing_of_a_login_is_shown(user: str, password: str) -> None:
    """A6: whatever a login holds, the mask ends behind its last @."""
    shown = masked_proxy(f"http://{user}:{password}@proxy.test:3128")
    assert shown.endswith("***@proxy.test:3128")
    assert shown in {"http://***@proxy.test:3128", "***@proxy.test:3128"}


def test_rules_and_proxies_say_no_login_by_themselves() -> None:
    """A6: in logs and tracebacks."""
    rules = ExitRules(proxies=("http://bee:honey@h:1",))
    proxy = parse_proxy(rules.proxies[0])
    for shown in (repr(rules), repr(RunSettings(exits=rules)), f"{proxy!r} {proxy}"):
        assert "h:1" in shown
        assert "honey" not in shown
        assert "bee" not in shown
    run = Run("r", "j", RunState.RUNNING, RunSettings(exits=rules), 0.0)
    assert b"honey" not in msgspec.json.encode(without_secrets(run))
    assert b"honey" in msgspec.msgpack.encode(run)


# --- turns and rests ---


def test_exits_take_turns_from_a_seeded_one_on() -> None:
    """A6: every exit once before any comes again."""
    one, same, other = pool(5), pool(5), pool(5, seed=2)
    first = places([one.take(0.0) for _ in range(10)])
    assert first[:5] == first[5:]
    assert len(set(first[:5])) == 5
    assert places([same.take(0.0) for _ in range(10)]) == first
    assert places([other.take(0.0) for _ in range(10)]) != first


def test_an_exit_that_rests_is_passed_over_until_its_time() -> None:
    """A6: then it is tried again."""
    exits = pool(2, rest=10.0)
    bad = exits.take(0.0)
    assert bad is not None
    assert exits.rest(bad, 0.0)
    assert not exits.rest(bad, 1.0), "known already: counted once"
    assert all(exits.take(5.0) is not bad for _ in range(4))
    assert bad in [exits.take(11.0) for _ in range(2)]


def test_without_an_exit_that_works_there_is_none() -> None:
    """A6: never the direct way."""
    exits = pool(2, rest=10.0)
    for _ in range(2):
        way = exits.take(0.0)
        assert way is not None
        exits.rest(way, 0.0)
    assert exits.take(1.0) is None
    assert exits.take(10.0) is not None


def test_the_exit_that_was_blocked_is_avoided_if_there_is_another() -> None:
    exits = pool(2)
    before = exits.take(0.0)
    assert exits.take(0.0, before) is not before
    only = pool(1)
    same = only.take(0.0)
    assert only.take(0.0, same) is same


def test_no_proxies_is_the_direct_way() -> None:
    way = pool(0).take(0.0)
    assert way is not None
    assert way.proxy is None


@pytest.mark.parametrize(
    ("said", "trouble"),
    [
        (Said(0, 200), ProxyFailure.NONE),
        (Said(0, 503), ProxyFailure.NONE),
        (Said(0, 407), ProxyFailure.DEAD),
        (Said(5, 0), ProxyFailure.DEAD),
        (Said(7, 0), ProxyFailure.DEAD),
        (Said(28, 0, connected=False), ProxyFailure.DEAD),
        (Said(28, 0), ProxyFailure.NONE),
        (Said(56, 0, connect=407), ProxyFailure.DEAD),
        (Said(56, 0, connect=401), ProxyFailure.DEAD),
        (Said(56, 0, connect=502), ProxyFailure.NONE),
        (Said(7, 0, connect=500), ProxyFailure.NONE),
        (Said(97, 0, socks=33), ProxyFailure.DEAD),
        (Said(97, 0, socks=21), ProxyFailure.NONE),
        (Said(97, 0, socks=27), ProxyFailure.NONE),
        (Said(56, 200, connect=200), ProxyFailure.CUT),
        (Said(52, 0), ProxyFailure.CUT),
        (Said(18, 200), ProxyFailure.CUT),
        (Said(60, 0), ProxyFailure.NONE),
    ],
)
def test_who_is_to_blame(said: Said, trouble: ProxyFailure) -> None:
    """A6: a server that does not answer must not cost a proxy its place."""
    assert proxy_failure(said) is trouble
    assert not login_refused(said) or trouble is ProxyFailure.DEAD


# --- sessions ---


def sessions(rules: SessionRules | None, exits: ExitRules | None = None, ways: int = 3) -> Any:
    return SessionPool(exits, rules, pool(ways), Random(1))


def test_unnamed_sessions_take_turns_and_named_ones_stay() -> None:
    made = sessions(SessionRules(count=3))
    turns = [made.take("", 0.0) for _ in range(6)]
    assert turns[:3] == turns[3:]
    assert len({id(one) for one in turns}) == 3
    assert made.take("alice", 0.0) is made.take("alice", 0.0)
    assert made.take("alice", 0.0) is not made.take("bob", 0.0)


def test_a_session_ends_when_its_last_request_has() -> None:
    """Its connections are needed until then."""
    made = sessions(SessionRules())
    one = made.take("", 0.0)
    assert made.take("", 0.0) is one
    assert made.retire(one, "blocked")
    assert not made.retire(one, "blocked"), "counted once"
    made.leave(one)
    assert made.ended == []
    made.leave(one)
    assert made.ended == [one]
    fresh = made.take("", 0.0)
    assert fresh is not one
    assert fresh.predecessor is None, "a blocked identity leaves nothing behind"
    assert fresh.exit is not one.exit


def test_without_rules_for_sessions_only_the_exit_changes() -> None:
    made = sessions(None, ExitRules(switch_after=2))
    first = [made.take("", 0.0) for _ in range(4)]
    assert first[0] is first[1]
    assert first[2] is first[3]
    assert first[2] is not first[0]
    assert first[2].predecessor is first[0]


def test_the_smaller_limit_of_uses_counts() -> None:
    for uses, after in ((2, 5), (5, 2), (2, 0)):
        made = sessions(SessionRules(uses=uses), ExitRules(switch_after=after))
        taken = [made.take("", 0.0) for _ in range(4)]
        assert taken[1] is taken[0]
        assert taken[2] is not taken[1]


def test_a_dead_exit_takes_its_sessions_and_no_other() -> None:
    made = sessions(SessionRules(count=3))
    alive = [made.take("", 0.0) for _ in range(3)]
    assert made.retire_all("its proxy died", alive[1].exit) == 1
    assert [bool(one.retired) for one in alive] == [False, True, False]
    assert made.retire_all("redialled") == 2


def test_a_name_survives_a_time_without_exits() -> None:
    """Its cookies are wanted when a proxy is back."""
    ways = pool(1, rest=10.0)
    made = SessionPool(ExitRules(), None, ways, Random(1))
    before = made.take("alice", 0.0)
    assert before is not None
    ways.rest(before.exit, 0.0)
    made.retire_all("its proxy died", before.exit)
    assert made.take("alice", 1.0) is None
    after = made.take("alice", 11.0)
    assert after is not None
    assert after.predecessor is before


def test_names_are_bounded() -> None:
    made = sessions(SessionRules())
    first = made.take("0", 0.0)
    made.leave(first)
    for number in range(1, NAMED_LIMIT + 1):
        made.take(str(number), 0.0)
    assert first.retired == "forgotten"
    assert made.ended == [first]


def test_headers_go_round() -> None:
    sets = tuple({"User-Agent": str(number)} for number in range(3))
    made = sessions(SessionRules(count=6, headers=sets))
    worn = [made.take("", 0.0).headers["User-Agent"] for _ in range(6)]
    assert sorted(worn) == ["0", "0", "1", "1", "2", "2"]


# --- patterns ---


def test_patterns_see_status_headers_and_body() -> None:
    text = searched(429, "Slow down", [("X-Wall", "yes")], b"<b>captcha</b>")
    for pattern in ("^HTTP 429", "(?i)x-wall: YES", "captcha", r"(?m)^X-Wall", "Slow"):
        found = compiled(pattern, "p")
        assert found is not None
        assert found.search(text) is not None, pattern
    assert compiled("", "p") is None


def test_no_pattern_takes_long() -> None:
    """A6: the engine's thread and the whole process would stand still meanwhile."""
    text = b"a" * 200_000
    began = time.process_time()
    for pattern in (r"(a+)+$b", r".*.*.*captcha", r"(a|aa)+b", r"(.*)*b"):
        found = compiled(pattern, "p")
        assert found is not None
        assert found.search(text) is None
    assert time.process_time() - began < 2.0


@pytest.mark.parametrize("pattern", ["(", "a(?=b)", r"(a)\1", "[z-a]", "x{1000}{1000}"])
def test_a_wrong_pattern_is_told(pattern: str) -> None:
    with pytest.raises(InvalidInput, match=r"exits\.switch_when is not a valid pattern"):
        compiled(pattern, "exits.switch_when")


# --- what a caller writes ---


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"exits": {}}, "set proxies or redial"),
        ({"exits": {"proxies": ["http://h:1"], "redial": True}}, "exclude each other"),
        ({"exits": {"redial": True}}, "set one of them"),
        ({"exits": {"proxies": ["http://h:1", "nonsense"]}}, r"exits.proxies\[1\]"),
        ({"exits": {"proxies": ["http://h:1"], "switch_when": "("}}, "exits.switch_when"),
        ({"sessions": {"blocked_when": "("}}, "sessions.blocked_when"),
        ({"sessions": {"headers": [{"X\n": "1"}]}}, "not a valid header name"),
    ],
)
def test_rules_that_no_agent_could_follow(settings: dict[str, Any], said: str) -> None:
    """D6: told when the run is opened."""
    chosen = msgspec.convert(settings, AskedSettings).checked()
    with pytest.raises(InvalidInput, match=said):
        Validator(("http",), Random(1)).check_settings(chosen)


@pytest.mark.parametrize(
    "settings",
    [
        {"exits": {"proxys": ["http://h:1"]}}, {"sessions": {"number": 3}}, {"sessions": 0},
        {"exits": {"tries": 0}}, {"exits": {"switch_after": -1}}, {"sessions": {"count": 0}},
    ],
)  # fmt: skip
def test_misspelt_rules_are_told(settings: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError, match=r"exits|sessions"):
        msgspec.convert(settings, AskedSettings)


def test_a_number_of_sessions_is_short_for_rules() -> None:
    settings = msgspec.convert({"sessions": 5}, AskedSettings).checked()
    assert session_rules(settings.sessions) == SessionRules(count=5)
    travelled = msgspec.msgpack.decode(msgspec.msgpack.encode(settings), type=RunSettings)
    assert travelled == settings


def test_the_same_page_in_two_sessions_is_two_requests() -> None:
    validator = Validator(("http",), Random(1))
    uri = "http://x.test/account"
    offered = [NewRequest(uri), NewRequest(uri, session="a"), NewRequest(uri, session="b")]
    rows = validator.rows([*offered, NewRequest(uri, session="a")], 5, 0.0)
    assert rows[0].fingerprint == fingerprint_of(uri)
    assert len({row.fingerprint for row in rows}) == 3
    assert rows[1].fingerprint == rows[3].fingerprint


# --- what a proxy is not asked for ---


@pytest.mark.parametrize("host", ["example.com", "8.8.8.8", "[2606:4700::1]"[1:-1], "a.b.c."])
def test_public_hosts_may_be_asked_for(host: str) -> None:
    assert EgressPolicy().check_name(host) is None


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "127.1", "0177.0.0.1", "0x7f.1", "2130706433", "10.1", "::1",
        "::ffff:127.0.0.1", "169.254.169.254", "localhost", "LOCALHOST.", "x.localhost",
        "printer", "db.internal", "nas.local", "router.lan", "metadata.google.internal.",
        "x.home.arpa",
    ],
)  # fmt: skip
def test_inner_hosts_may_not(host: str) -> None:
    """Fault 54: in any spelling that a resolver would understand."""
    assert EgressPolicy().check_name(host) is not None


def test_opening_private_networks_opens_their_names() -> None:
    policy = EgressPolicy(allow=("10.0.0.0/8",))
    assert policy.check_name("db.internal") is None
    assert policy.check_name("10.1.2.3") is None
    assert policy.check_name("localhost") is not None
    assert EgressPolicy(allow=("127.0.0.0/8",)).check_name("localhost") is None
