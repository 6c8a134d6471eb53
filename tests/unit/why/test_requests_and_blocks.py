"""Why a request or a block is not done: each reason from its facts alone. Pure."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from skep.model.fleet.agent import AgentView, Registration
from skep.model.fleet.placement import Placement
from skep.model.hosts.host import SiteRule
from skep.model.hosts.politeness import HostPoliteness, Politeness
from skep.model.lane import Lane
from skep.model.run import Run, RunSettings
from skep.model.states import BlockState, RequestState, RunState
from skep.model.wait_reasons import Reason, Why
from skep.store.ports.waits import (
    BlockFacts,
    BlockWait,
    Hold,
    HostFacts,
    InHand,
    LastTry,
    RequestWait,
)
from skep.why.blocks import View, why_block
from skep.why.fleet import Fleet, Needs, needs_of, no_agent, obstacles
from skep.why.hosts import Asker, host_reasons, why_host
from skep.why.requests import why_request

#: 2026-11-16 12:00:00 UTC.
NOW = 1794830400.0
HOST = "example.org"
FREE = dict.fromkeys(Lane, (0, 2000))


def agent(name: str = "a1", seen: float = NOW - 2, **more: Any) -> AgentView:
    enabled, aside = more.pop("enabled", True), more.pop("aside", "")
    return AgentView(Registration(name, name, **more), enabled, NOW - 100, seen, aside=aside)


def fleet(*agents: AgentView, **more: Any) -> Fleet:
    return Fleet(NOW, 11.0, agents, **{"lanes": FREE, **more})


def view(*agents: AgentView, in_lanes: frozenset[int] | None = None, **more: Any) -> View:
    return View(fleet(*(agents or (agent(),)), **more), Politeness(), in_lanes)


def run(state: RunState = RunState.RUNNING, reason: str = "", **settings: Any) -> Run:
    return Run("web", "job", state, RunSettings(**settings), NOW - 600, reason, NOW - 60)


def host(hold: Hold | None = None, name: str = HOST, **site: Any) -> HostFacts:
    return HostFacts(HostPoliteness(name, **site), hold)


OWN = HostFacts(HostPoliteness("127.0.0.1"), None, known=False)


def request(state: RequestState = RequestState.WAITING, **fields: Any) -> RequestWait:
    usual: dict[str, Any] = {
        "priority": 3,
        "failures": 0,
        "not_before": 0.0,
        "expires_at": None,
        "run": run(),
    }
    usual |= {"created_at": NOW - 9, "host": OWN}
    return RequestWait(id=17, uri="http://example.org/x", state=state, **{**usual, **fields})


def block(state: BlockState = BlockState.READY, **fields: Any) -> BlockFacts:
    usual: dict[str, Any] = {
        "token": 1,
        "agent": "",
        "target": "",
        "lease_until": 0.0,
        "changed_at": NOW - 30,
    }
    usual |= {"detail": "", "size": 100, "open": 40, "losses": 0}
    usual |= {"expires_at": None, "answer_by": None}
    return BlockFacts(id=812, run="web", priority=3, state=state, **{**usual, **fields})


USED = block(BlockState.USING, agent="a1", lease_until=NOW + 28)


def codes(why: Why) -> list[str]:
    return [reason.code for reason in why.reasons]


def only(reasons: list[Reason]) -> Reason:
    (reason,) = reasons
    return reason


# -- who could do it


def test_no_agent_at_all() -> None:
    reason = only(no_agent(fleet(), Needs()))
    assert reason.code == "no_agent"
    assert reason.do == ("skep agent --center URL",)


def test_no_live_agent_says_who_was_heard_last() -> None:
    reason = only(no_agent(fleet(agent("old", NOW - 900), agent("new", NOW - 60)), Needs()))
    assert reason.code == "no_live_agent"
    assert "2 agents registered" in reason.text
    assert "60 s ago from new" in reason.text


def test_all_live_agents_are_disabled() -> None:
    """One that is enabled and dead does not count."""
    found = [agent(f"a{n}", enabled=False) for n in (1, 2, 3)]
    reason = only(no_agent(fleet(*found, agent("dead", NOW - 60)), Needs()))
    assert (reason.code, reason.text) == ("agents_disabled", "all 3 live agents are disabled")
    assert reason.do[0] == "skep agents enable a1"


def placed(chosen: frozenset[str] | None = None, **placement: Any) -> Needs:
    return needs_of(RunSettings(placement=Placement(**placement)), chosen=chosen)


def test_no_live_agent_with_a_label() -> None:
    found = [agent("a1", labels={"zone": "eu"}, enabled=False), agent("a2", labels={"zone": "us"})]
    reason = only(no_agent(fleet(*found), placed(labels={"zone": "eu"})))
    assert reason.code == "no_agent_fits"
    assert reason.text == "no live agent with label zone=eu (a2: label zone is us, not eu)"
    assert no_agent(fleet(agent(labels={"zone": "eu"})), placed(labels={"zone": "eu"})) == []
    several = [agent("a", group="b"), agent("b", group="a", os="Linux 6.1")]
    wrong = only(no_agent(fleet(*several), placed(group="a", os="Windows", memory=1)))
    assert wrong.text.startswith("no live agent in group a and on Windows (a: ")
    assert wrong.facts["agents"] == {"a": "group", "b": "os"}


def test_the_agents_that_were_chosen_are_gone() -> None:
    found = [agent("mine", NOW - 60), agent("other")]
    needs = placed(frozenset({"mine"}), strategy="fixed")
    reason = only(no_agent(fleet(*found), needs))
    assert reason.code == "no_agent_fits"
    assert "chosen for this run is available: mine, last heartbeat 60 s ago" in reason.text
    assert no_agent(fleet(agent("mine"), agent("other")), needs) == []


def test_only_those_who_were_chosen_count() -> None:
    """C5: another agent that fits, or that could be enabled, takes no other agent's place."""
    found = [agent("mine", enabled=False, aside="draining"), agent("other")]
    needs = placed(frozenset({"mine"}), strategy="fixed", labels={"zone": "eu"})
    reason = only(no_agent(fleet(*found), needs))
    assert reason.text.endswith(
        "chosen for this run is available: mine, last heartbeat 2 s ago, draining"
    )
    assert reason.do[0] == "skep agents enable mine"
    gone = [agent("mine", NOW - 60), agent("other", enabled=False)]
    assert "enable other" not in str(only(no_agent(fleet(*gone), needs)).do)
    assert no_agent(fleet(agent("mine"), agent("other")), needs) == [], (
        "labels counted at the start"
    )
    again = placed(frozenset({"mine"}), strategy="chained", when_gone="restart")
    assert no_agent(fleet(agent("mine", NOW - 60), agent("other")), again) == []
    assert only(no_agent(fleet(*gone), again)).code == "agents_disabled"


def test_the_strategy_is_not_installed_any_more() -> None:
    """No agent is given its requests, although one would fit."""
    reason = only(no_agent(fleet(agent("a")), placed(strategy="gone")))
    assert reason.text == "the placement strategy gone is not installed at this center"


@pytest.mark.parametrize(
    ("agents", "code"),
    [
        ([], "no_agent"),
        ([agent("a", NOW - 60)], "no_live_agent"),
        ([agent("a", enabled=False)], "agents_disabled"),
    ],
)
def test_a_strategy_that_is_not_installed_is_named_with_other_reasons(
    agents: list[AgentView], code: str
) -> None:
    """Starting an agent alone would not help."""
    found = no_agent(fleet(*agents), placed(strategy="gone"))
    assert ["strategy gone is not installed" in one.text for one in found] == [True, False]
    assert found[1].code == code


def test_a_block_for_one_agent_of_a_strategy_that_is_not_installed() -> None:
    """It goes to its agent; when the agent is gone, no other gets its requests."""
    needs = needs_of(RunSettings(placement=Placement("gone")), target="a")
    assert no_agent(fleet(agent("a"), agent("b")), needs) == []
    away = no_agent(fleet(agent("a", NOW - 60), agent("b")), needs)
    assert [one.code for one in away] == ["target_agent", "no_agent_fits"]
    assert "strategy gone is not installed" in away[1].text


def test_no_live_agent_offers_the_downloader() -> None:
    found = [agent("a1"), agent("a2", NOW - 60, kinds=("shell",))]
    shell = needs_of(RunSettings(downloader="shell"))
    reason = only(no_agent(fleet(*found), shell))
    assert reason.code == "no_agent_offers"
    assert reason.text == "no live agent offers downloader shell: 1 agent available, with http"
    assert "no agent ever did" in only(no_agent(fleet(agent()), shell)).text
    assert no_agent(fleet(agent(kinds=("http", "shell"))), shell) == []


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ([], "no such agent"),
        ([agent("t", NOW - 60)], "its last heartbeat was 60 s ago"),
        ([agent("t", enabled=False)], "it is disabled"),
    ],
)
def test_the_one_agent_that_may_take_it(found: list[AgentView], words: str) -> None:
    reason = only(no_agent(fleet(agent(), *found), needs_of(RunSettings(), "t")))
    assert reason.code == "target_agent"
    assert words in reason.text


def test_targets_that_name_no_agent_are_not_taken_for_one() -> None:
    assert needs_of(RunSettings(), "kind:shell") == needs_of(RunSettings(), "run:7") == Needs()
    assert needs_of(RunSettings(), "t").target == "t"
    assert no_agent(fleet(agent("t")), needs_of(RunSettings(), "t")) == []


def test_a_full_disk_and_a_bus_that_is_away() -> None:
    found = obstacles(
        fleet(agent(), lanes=None, trouble="Redis is away", full="12 MiB free"), Needs()
    )
    assert [reason.code for reason in found] == ["disk_full", "bus_down"]
    assert found[0].text.endswith("no requests are accepted or leased: 12 MiB free")
    assert obstacles(fleet(agent()), Needs()) == []


# -- hosts


ASKER = Asker(NOW, Politeness())


def test_a_host_that_cools() -> None:
    reason = only(host_reasons(host(cooling_until=NOW + 240, reason="429", strikes=2), ASKER))
    assert reason.code == "host_cooling"
    assert reason.text.startswith("host example.org is paused until 12:04:00 UTC (429")
    assert (reason.until, reason.do) == (NOW + 240, ("skep sites clear example.org",))
    assert reason.facts["strikes"] == 2


def test_a_host_in_the_hands_of_another_block() -> None:
    """The hold's time, then one distance for each request before it."""
    hold = Hold(812, NOW + 10, 0.525, "other", "a-1", BlockState.USING, 19)
    asker = msgspec.structs.replace(ASKER, before=57)
    reason = host_reasons(host(hold), asker)[0]
    assert reason.code == "host_held"
    assert "block 812, leased to agent a-1 (run other); 57 requests before it" in reason.text
    assert reason.text.endswith("about 40 s")
    assert reason.until == pytest.approx(NOW + 10 + 57 * 0.525)
    waits = msgspec.structs.replace(hold, state=BlockState.READY, agent="")
    assert "which waits for an agent" in host_reasons(host(waits), ASKER)[0].text
    mine = msgspec.structs.replace(ASKER, block=812)
    assert [reason.code for reason in host_reasons(host(hold), mine)] == ["host_pace"]


def test_a_host_with_a_pace_and_one_on_probation() -> None:
    reason = only(host_reasons(host(rule=SiteRule(rate=2)), ASKER))
    assert reason.code == "host_pace"
    assert "limited to 1.9/s, 4 at once" in reason.text
    assert only(host_reasons(host(strikes=1, reason="503"), ASKER)).code == "host_probe"
    assert host_reasons(OWN, ASKER) == []


def test_sites_as_a_whole() -> None:
    assert (why_host(OWN, [], ASKER).state, codes(why_host(OWN, [], ASKER))) == (
        "free",
        ["host_unknown"],
    )
    known = HostFacts(HostPoliteness("127.0.0.1"))
    assert codes(why_host(known, [], ASKER)) == ["host_free"]
    cools = why_host(host(cooling_until=NOW + 9), [], ASKER)
    assert (cools.state, cools.waiting) == ("cooling", True)
    hold = Hold(812, NOW + 10, 0.5, "other", "", BlockState.READY, 3)
    missing = no_agent(fleet(), Needs())
    held = why_host(host(hold), missing, ASKER)
    assert (held.state, held.waiting, codes(held)[0]) == ("held", True, "no_agent")


# -- blocks


def test_a_block_in_its_lane() -> None:
    lanes = {**FREE, Lane.SUPER: (50, 1000), Lane.MID: (1900, 2000)}
    why = why_block(BlockWait(block(), run(), []), view(lanes=lanes, in_lanes=frozenset({812})))
    assert (why.state, why.waiting, codes(why)) == ("ready", True, ["in_lane"])
    assert "in lane mid with 1,900 requests, and 50 requests in better lanes" in why.reasons[0].text


def test_a_block_outside_its_lane() -> None:
    outside = frozenset({1})
    full = {**FREE, Lane.MID: (1950, 2000)}
    why = why_block(BlockWait(block(), run(), []), view(lanes=full, in_lanes=outside))
    assert (codes(why), why.reasons[0].text) == (["lane_full"], "lane mid is full: 1950/2000")
    why = why_block(BlockWait(block(), run(), []), view(in_lanes=outside))
    assert codes(why) == ["to_be_offered"]


def test_a_block_without_agents_says_so_first() -> None:
    why = why_block(BlockWait(block(), run(), []), view(agent(seen=NOW - 60)))
    assert codes(why) == ["no_live_agent", "in_lane"]


def test_a_block_of_a_run_that_rests() -> None:
    paused = run(RunState.PAUSED, "paused by message")
    why = why_block(BlockWait(block(BlockState.RETRY), paused, []), view())
    assert codes(why)[0] == "run_paused"
    assert why.reasons[0].do == ("skep runs continue web",)


def test_a_block_that_was_cut_out_waits_for_its_host() -> None:
    hold = Hold(900, NOW + 3, 1.0, "web", "a2", BlockState.USING, 5)
    single = block(BlockState.RETRY, size=1, losses=3)
    assert codes(why_block(BlockWait(single, run(), [host(hold)]), view()))[0] == "host_held"


def test_a_leased_block_and_an_agent_that_is_busy() -> None:
    facts = msgspec.structs.replace(USED, answer_by=NOW + 600)
    why = why_block(BlockWait(facts, run(), [], InHand("a1", 3, 250)), view())
    assert (why.waiting, codes(why)) == (False, ["leased", "agent_busy"])
    assert why.reasons[0].text == (
        "block 812 is leased to agent a1 since 11:59:30 UTC, lease until 12:00:28 UTC;"
        " its last heartbeat was 2 s ago"
    )
    assert "without any by 12:10:00 UTC another agent gets it" in why.reasons[0].frees
    assert "3 blocks with 250 open requests" in why.reasons[1].text


def test_a_leased_block_of_a_silent_agent() -> None:
    why = why_block(BlockWait(USED, run(), []), view(agent(seen=NOW - 15)))
    assert (why.waiting, codes(why)) == (True, ["agent_silent"])
    assert "its last heartbeat was 15 s ago" in why.reasons[0].text
    unknown = why_block(BlockWait(USED, run(), []), view(agent("other")))
    assert "it is not registered" in unknown.reasons[0].text


def test_a_block_that_ended() -> None:
    facts = block(BlockState.FAILED, detail="its requests expired")
    why = why_block(BlockWait(facts, run(), []), view())
    assert (why.waiting, codes(why)) == (False, ["block_ended"])
    assert why.reasons[0].text == "block 812 failed 30 s ago: its requests expired"


# -- requests


def test_a_request_that_waits_for_its_lane() -> None:
    lanes = {**FREE, Lane.MID: (2000, 2000)}
    why = why_request(request(before=4), view(lanes=lanes))
    assert (why.state, why.waiting) == ("waiting", True)
    assert codes(why) == ["lane_full", "to_be_packed"]
    assert why.reasons[0].text == "lane mid is full: 2000/2000"


def test_a_request_that_is_about_to_be_packed() -> None:
    why = why_request(request(before=1000, expires_at=NOW + 60), view())
    assert codes(why) == ["to_be_packed", "expires"]
    assert "after at least 1,000 requests of its run" in why.reasons[0].text
    assert why.reasons[1].until == NOW + 60


def test_a_request_in_a_block_has_the_reasons_of_the_block() -> None:
    why = why_request(request(RequestState.QUEUED, block=block()), view(agent(seen=NOW - 60)))
    assert (why.state, codes(why)) == ("queued", ["no_live_agent", "in_lane"])
    leased = why_request(request(RequestState.QUEUED, block=USED, host=host()), view())
    assert (leased.state, leased.waiting) == ("leased", False)
    assert codes(leased) == ["leased", "host_pace"]


def test_a_retry_says_which_and_after_what() -> None:
    last = LastTry(NOW - 5, "a1", "timeout", 0, "no answer for 120 s")
    fields = {"failures": 2, "not_before": NOW + 300, "last": last, "run": run(retries=3)}
    why = why_request(request(RequestState.DELAYED, **fields), view())
    assert codes(why) == ["retry"]
    assert why.reasons[0].text == "retry 2 of 3 at 12:05:00 UTC after timeout (no answer for 120 s)"
    assert (why.reasons[0].until, why.reasons[0].frees) == (
        NOW + 300,
        "none; it retries automatically in 5 min",
    )
    longer = {**fields, "host": host(cooling_until=NOW + 900, reason="503")}
    assert codes(why_request(request(RequestState.DELAYED, **longer), view())) == [
        *("host_cooling", "retry"),
    ]


def test_a_parked_request_waits_for_its_host() -> None:
    hold = Hold(812, NOW + 10, 0.525, "web", "a1", BlockState.USING, 19)
    why = why_request(request(RequestState.DELAYED, host=host(hold), before=12), view())
    assert codes(why)[0] == "host_held"
    assert why.reasons[0].facts["before"] == 12
    free = why_request(request(RequestState.DELAYED, not_before=NOW + 30), view())
    assert (codes(free), free.reasons[0].until) == (["parked"], NOW + 30)


@pytest.mark.parametrize(
    ("fields", "code", "words"),
    [
        (
            {"state": RequestState.DONE, "last": LastTry(NOW - 9, "a1", "", 200, "")},
            "done",
            "agent a1 completed it 9 s ago with 200",
        ),
        (
            {
                "state": RequestState.DEAD,
                "failures": 1,
                "last": LastTry(NOW - 9, "a1", "status", 404, ""),
            },
            "dead",
            "it is dead after 1 failed attempt: status 404",
        ),
        ({"state": RequestState.DEAD}, "dead", "it is dead"),
        (
            {"state": RequestState.EXPIRED, "expires_at": NOW - 60},
            "expired",
            "it expired at 11:59:00 UTC, before an agent took it",
        ),
        (
            {"state": RequestState.CANCELLED, "run": run(RunState.CANCELLED, "by message")},
            "cancelled",
            "it was cancelled; its run is cancelled: by message",
        ),
    ],
)
def test_a_request_that_ended_says_how(fields: dict[str, Any], code: str, words: str) -> None:
    why = why_request(request(**fields), view())
    assert (why.waiting, codes(why), why.reasons[0].text) == (False, [code], words)
    assert why.reasons[0].do == (("skep runs revive web",) if code == "dead" else ())
