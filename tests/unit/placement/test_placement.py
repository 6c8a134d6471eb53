"""Who may, who is chosen, who has a key: the pure parts of placement (C4, C5, fault 40)."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from skep.model.fleet.agent import AgentView, Registration, Vitals
from skep.model.fleet.placement import Placement, kind_target, own_target
from skep.placement.eligibility import Moment, Need, explain, fitting, judge, shortfall
from skep.placement.hash_keys import key_of, prefix_of, repository_of
from skep.placement.hash_ring import Ring, imbalance, moved
from skep.placement.strategies.chained import Chained
from skep.placement.strategies.hashed import Hashed
from skep.placement.strategies.shared import Shared
from skep.store.ports.placement import Wanted

NOW = Moment(1000.0, 11.0)
KEYS = [f"https://git.example/group{n % 97}/repo{n}" for n in range(20_000)]
AGENTS = [f"agent-{n}" for n in range(10)]


def view(name: str, *, enabled: bool = True, seen: float = 995.0, **about: object) -> AgentView:
    fields = {"group": "eu", "os": "Linux 6.1", "labels": {"site": "köln"}, **about}
    registration = Registration(name, name, **fields)  # type: ignore[arg-type]  # a test's fields
    return AgentView(registration, enabled, 0.0, seen, Vitals(free_memory=512 * 2**20))


ASKED = Placement("fixed", 2, group="eu", os="linux", labels={"site": "köln"}, memory=256)


@pytest.mark.parametrize(
    ("agent", "rule"),
    [
        (view("fits"), ""),
        (view("off", enabled=False), "enabled"),
        (view("dead", seen=980.0), "alive"),
        (view("kind:python"), "id"),
        (view("no code", kinds=("curl",)), "capability"),
        (view("us", group="us"), "group"),
        (view("mac", os="Darwin"), "os"),
        (view("elsewhere", labels={"site": "bonn"}), "labels"),
        (view("unlabelled", labels={}), "labels"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.id,
)
def test_the_first_rule_that_fails_is_the_reason(agent: AgentView, rule: str) -> None:
    """C4: enabled, alive, capability, group, system, labels."""
    verdict = judge(agent, Need(ASKED, "http"), NOW)
    assert (verdict.rule, bool(verdict.detail)) == (rule, bool(rule))


def test_memory_and_the_choice_come_last() -> None:
    """C4: free memory as of the last beat; who was not chosen is told so."""
    greedy = Need(Placement(memory=1024), "http")
    assert judge(view("a"), greedy, NOW).detail == "512 MB of memory are free, 1024 are asked for"
    others = Need(ASKED, "http", frozenset({"b"}))
    assert [v.rule for v in explain([view("a"), view("b")], others, NOW)] == ["chosen", ""]
    assert [v.id for v in fitting([view("a"), view("b")], others, NOW)] == ["b"]


def test_the_shortfall_names_who_is_missing_and_why() -> None:
    """Fault 20."""
    found = explain([view("a"), view("b", group="us")], Need(ASKED, "http"), NOW)
    assert shortfall(2, found) == (
        "2 agents are needed and 1 of 2 can be had; b (group: it is in group us, not in eu)"
    )
    assert shortfall(1, []).endswith("0 of 0 can be had; no others are known")


def test_one_of_ten_leaves_and_only_its_keys_move() -> None:
    """Fault 40, M2: 100,000 keys; moved / ideal <= 1.1, for any agent."""
    before = Ring(AGENTS)
    shares = before.shares(KEYS)
    assert imbalance(shares) <= 1.1
    ideal = len(KEYS) / len(AGENTS)
    for gone in AGENTS[::4]:
        after = Ring(agent for agent in AGENTS if agent != gone)
        moves = moved(before, after, KEYS)
        assert {source for source, _ in moves} == {gone}, "no other keys move"
        assert moves.total() == shares[gone]
    assert max(shares.values()) / ideal <= 1.1, "so no leaving moves more"


def test_one_joins_ten_and_takes_its_share() -> None:
    """Fault 40: what moves goes to the new one, and is no more than its share."""
    moves = moved(Ring(AGENTS), Ring([*AGENTS, "new"]), KEYS)
    assert {to for _, to in moves} == {"new"}
    assert moves.total() / (len(KEYS) / 11) <= 1.1


def test_every_center_has_the_same_ring() -> None:
    assert Ring(AGENTS).shares(KEYS[:1000]) == Ring(reversed(AGENTS)).shares(KEYS[:1000])
    assert Ring(()).owner("key") == ""


def test_a_ring_made_from_another_is_the_same() -> None:
    """Whatever came before: agents come and go in any order."""
    rng = Random(7)
    ring = Ring(())
    for _ in range(20):
        agents = rng.sample(AGENTS, rng.randint(0, len(AGENTS)))
        ring = Ring(agents, before=ring)
        assert ring.agents == tuple(sorted(agents))
        fresh = Ring(agents)
        assert [ring.owner(key) for key in KEYS[:300]] == [fresh.owner(key) for key in KEYS[:300]]


@pytest.mark.parametrize(
    "url",
    [
        "https://Git.example/group/repo.git",
        "https://user:secret@git.example/group/repo",
        "ssh://git@git.example:22/group/repo.git",
        "git@git.example:group/repo.git",
        "http://git.example/group/repo/",
    ],
)
def test_one_repository_is_one_key(url: str) -> None:
    """C5, M2: however its URL is written."""
    assert repository_of(url) == "git.example/group/repo"


def test_keys() -> None:
    """C5: host, prefix, session, git, uri."""
    wanted = Wanted("https://a.example/blog/2024/x.html?q=1", "a.example", "s1")
    assert key_of(wanted, "host") == "a.example"
    assert key_of(wanted, "prefix") == "https://a.example/blog/"
    assert key_of(wanted, "session") == "s1"
    assert key_of(wanted._replace(session=""), "session") == "a.example"
    assert key_of(wanted, "uri") == wanted.uri
    assert prefix_of("https://a.example/top.html?q=1") == "https://a.example/top.html"
    for same in ("https://a.example", "https://A.example/", "https://a.example?q=1#top"):
        assert prefix_of(same) == "https://a.example/"


def test_chained_holds_back_what_belongs_to_an_absent_agent() -> None:
    """C6: with an agent, to it alone; without, to a random one that is there."""
    chained = Chained(["a", "b"], Random(1))
    free = Wanted("http://x/", "x")
    assert chained.target(free._replace(place="b")) == "b"
    assert chained.target(free._replace(place="c")) is None
    assert chained.target(free._replace(place=">7")) is None
    spread = Counter(chained.target(free) for _ in range(1000))
    assert set(spread) == {"a", "b"}
    assert min(spread.values()) > 400
    assert Chained([], Random(1)).target(free) is None


def test_targets_of_the_other_strategies() -> None:
    wanted = Wanted("http://x/", "x")
    assert Shared("run:7").target(wanted) == "run:7"
    ring = Ring(AGENTS)
    assert Hashed(ring, "host").target(wanted) == ring.owner("x")
    assert Hashed(Ring(()), "host").target(wanted) is None


def test_words() -> None:
    assert (kind_target("http"), kind_target("python")) == ("", "kind:python")
    assert own_target("run:7") == ()
    assert Placement().plain
    assert not Placement(group="eu").plain
    assert ASKED.in_words() == "fixed(2) group=eu os=linux site=köln memory>=256MB"
    assert Placement("hashed", key="git").in_words() == "hashed(git)"
    wanted = [Placement(kind).wanted for kind in ("any", "hashed")]
    assert wanted == [0, 1]
