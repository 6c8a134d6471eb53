"""Why a run or a job does not go on: each reason from its facts alone. Pure."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest

from skep.cli.main import skep
from skep.model.fleet.agent import AgentView, Registration
from skep.model.fleet.placement import Placement
from skep.model.hosts.politeness import HostPoliteness, Politeness
from skep.model.jobs.fire import Fire, FireState, Planned
from skep.model.jobs.job import Job, JobRun, KeptJob
from skep.model.jobs.schedule import Overlap, Schedule
from skep.model.lane import Lane
from skep.model.ledger import Ledger
from skep.model.run import Run, RunSettings
from skep.model.states import RunState
from skep.model.wait_reasons import Why
from skep.store.ports.waits import Delayed, DriverFacts, Failed, HostFacts, InHand, LastTry, RunWait
from skep.why.blocks import View
from skep.why.fleet import Fleet
from skep.why.jobs import JobWait, why_job
from skep.why.runs import why_run
from skep.why.supervision import SupervisionFacts
from skep.why.wording import counted, duration, moment, rate, up_to

#: 2026-11-16 12:00:00 UTC.
NOW = 1794830400.0
HOST = "example.org"
FREE = dict.fromkeys(Lane, (0, 2000))


def agent(seen: float = NOW - 2, name: str = "a1") -> AgentView:
    return AgentView(Registration(name, name), True, NOW - 100, seen)


def view(*agents: AgentView, **more: Any) -> View:
    found = agents or (agent(),)
    return View(Fleet(NOW, 11.0, found, **{"lanes": FREE, **more}), Politeness())


def run(state: RunState = RunState.RUNNING, reason: str = "") -> Run:
    return Run("web", "job", state, RunSettings(), NOW - 600, reason, NOW - 60)


def wait(ledger: Ledger, **fields: Any) -> RunWait:
    usual = {"run": run(), "priorities": (), "in_hands": [], "delayed": [], "hosts": {}}
    return RunWait(ledger=ledger, **{**usual, **fields})


def codes(why: Why) -> list[str]:
    return [reason.code for reason in why.reasons]


# -- words


def test_moments_durations_and_counts_read_well() -> None:
    assert moment(NOW + 245, NOW) == "12:04:05 UTC"
    assert moment(NOW + 2 * 86400, NOW) == "2026-11-18 12:00:00 UTC"
    assert [duration(s) for s in (-1, 40, 119, 120, 7200, 200_000)] == [
        *("0 s", "40 s", "119 s", "2 min", "2 h", "2 d"),
    ]
    assert (counted(1, "block"), counted(2000, "block")) == ("1 block", "2,000 blocks")
    assert (up_to(3, "request"), up_to(1000, "request")) == (
        "3 requests",
        "at least 1,000 requests",
    )
    assert (rate(0.5), rate(5.0)) == ("2/s", "1 in 5 s")


# -- runs


@pytest.mark.parametrize("state", [RunState.PAUSED, RunState.FAILED])
def test_a_run_that_rests_waits_for_a_person(state: RunState) -> None:
    why = why_run(wait(Ledger(9, waiting=9), run=run(state, "too many errors")), view())
    assert (why.state, why.waiting, codes(why)) == (str(state), True, [f"run_{state}"])
    assert "too many errors" in why.reasons[0].text
    assert why.reasons[0].do == ("skep runs continue web",)


@pytest.mark.parametrize("state", [RunState.FINISHED, RunState.CANCELLED])
def test_a_run_that_ended_says_how(state: RunState) -> None:
    why = why_run(wait(Ledger(3, done=2, dead=1), run=run(state, "by message")), view())
    assert (why.waiting, codes(why)) == (False, [f"run_{state}", "dead_requests"])
    assert "by message (2 done, 1 dead, 0 cancelled)" in why.reasons[0].text
    revives = "skep runs revive web" in why.reasons[0].do
    assert revives is (state is RunState.FINISHED)


def test_a_run_whose_lane_is_full() -> None:
    lanes = {**FREE, Lane.MID: (2000, 2000)}
    why = why_run(wait(Ledger(9, waiting=9), priorities=(2, 3, 5)), view(lanes=lanes))
    assert (why.waiting, why.reasons[0].text) == (True, "lane mid is full: 2000/2000")
    assert codes(why) == ["lane_full"]
    packed = why_run(wait(Ledger(9, waiting=9), priorities=(5,)), view(lanes=lanes))
    assert codes(packed) == ["to_be_packed"]


def test_a_run_without_agents_says_so_first() -> None:
    full = {**FREE, Lane.MID: (2000, 2000)}
    found = wait(Ledger(9, waiting=4, queued=5), priorities=(3,))
    why = why_run(found, view(agent(NOW - 60), lanes=full))
    assert codes(why) == ["no_live_agent", "lane_full", "in_lane"]


def test_nothing_is_packed_for_agents_that_are_not_there() -> None:
    """C6: a run with placement rules waits unpacked; one for any agent is packed at once."""
    placement = Placement(labels={"zone": "eu"})
    picky = msgspec.structs.replace(run(), settings=RunSettings(placement=placement))
    for one, frees in ((picky, "when an agent is available"), (run(), "within a second")):
        why = why_run(wait(Ledger(9, waiting=9), run=one, priorities=(5,)), view(agent(NOW - 60)))
        assert codes(why) == ["no_live_agent", "to_be_packed"]
        assert frees in why.reasons[1].frees


def test_a_run_that_goes_on_says_in_whose_hands_it_is() -> None:
    found = wait(
        Ledger(300, leased=120, queued=80, done=100),
        in_hands=[InHand("a1", 2, 90), InHand("dead", 1, 30)],
    )
    why = why_run(found, view(agent(), agent(NOW - 60, "dead")))
    assert (why.waiting, codes(why)) == (False, ["leased", "in_lane", "agent_silent"])
    assert why.reasons[0].text.startswith("90 requests are leased to agent a1 (2 blocks)")
    dead = why_run(found, view(agent(NOW - 60), agent(NOW - 60, "dead")))
    assert (dead.waiting, codes(dead)[0]) == (True, "no_live_agent")


def test_the_failure_behind_dead_requests_and_retries() -> None:
    """U5: the last failure and the next act are part of the answer."""
    refused = Failed("http://a.example/x", LastTry(NOW - 5, "a1", "network", 0, "refused"))
    why = why_run(wait(Ledger(2, dead=2), dead=refused, unread=2), view())
    assert codes(why)[:2] == ["dead_requests", "pages_unread"]
    assert why.reasons[0].text == (
        "2 requests are dead, most of them with the same failure: network (refused) at http://a.example/x"
    )
    assert why.reasons[0].do == ("skep failures ls --run web", "skep runs revive web")
    busy = Failed("http://a.example/y", LastTry(NOW - 5, "a1", "status", 503, ""))
    delayed = [Delayed(1, "h", 1, NOW + 60)]
    again = wait(Ledger(1, delayed=1), delayed=delayed, hosts={"h": _own()}, retried=busy)
    reason = why_run(again, view()).reasons[0]
    assert (reason.code, reason.facts["status"]) == ("retry", 503)
    assert reason.text.endswith("after status 503 at http://a.example/y")


def test_open_requests_of_a_finished_run() -> None:
    """U5: they are counted, and what would do them is named."""
    why = why_run(wait(Ledger(9, done=2, waiting=7), run=run(RunState.FINISHED)), view())
    assert (why.waiting, codes(why)) == (False, ["run_finished", "left_open"])
    assert "2 done, 0 dead, 0 cancelled, 7 open" in why.reasons[0].text
    assert why.reasons[1].do == ("skep runs continue web",)


def test_a_run_that_waits_for_hosts_and_retries() -> None:
    hosts = {
        HOST: HostFacts(HostPoliteness(HOST, cooling_until=NOW + 60, reason="429")),
        "h": _own(),
    }
    delayed = [
        Delayed(1, HOST, 0, NOW + 60),
        Delayed(2, HOST, 1, NOW + 60),
        Delayed(3, "h", 1, NOW + 5),
    ]
    why = why_run(wait(Ledger(3, delayed=3), delayed=delayed, hosts=hosts), view())
    assert (why.waiting, codes(why)) == (True, ["host_cooling", "retry"])
    assert (why.reasons[1].until, why.reasons[1].facts["looked_at"]) == (NOW + 5, 2)
    unseen = why_run(wait(Ledger(5000, delayed=5000)), view())
    assert codes(unseen) == ["parked"]


def _own() -> HostFacts:
    return HostFacts(HostPoliteness("127.0.0.1"))


LIVELY = DriverFacts(NOW - 3, 60.0)


def test_a_spider_waits_for_outstanding_answers() -> None:
    found = wait(Ledger(9, queued=4, done=5), driver=LIVELY)
    why = why_run(found, view())
    assert codes(why) == ["in_lane", "waits_for_answers"]
    assert "waits for 4 answers" in why.reasons[1].text


@pytest.mark.parametrize(
    ("driver", "words"),
    [
        (
            DriverFacts(NOW - 90, 60.0),
            "made its last call 90 s ago and has not read 120 finished pages",
        ),
        (DriverFacts(NOW - 1, None), "its driver has ended"),
        (DriverFacts(NOW - 600, 0.0), "made its last call 10 min ago"),
    ],
)
def test_a_spider_that_does_not_run(driver: DriverFacts, words: str) -> None:
    why = why_run(wait(Ledger(120, done=120), driver=driver, unread=120), view())
    assert (why.waiting, codes(why)) == (True, ["driver_gone"])
    assert words in why.reasons[0].text
    assert why.reasons[0].do == ("skep run SPIDER --resume web",)


def test_a_spider_that_reads_goes_on() -> None:
    why = why_run(wait(Ledger(120, done=120), driver=LIVELY, unread=20), view())
    assert (why.waiting, codes(why)) == (False, ["pages_unread"])
    idle = why_run(wait(Ledger(120, done=120), driver=LIVELY), view())
    assert codes(idle) == ["driver_decides"]


def test_a_run_of_requests_with_nothing_left() -> None:
    empty = why_run(wait(Ledger()), view(agent(NOW - 60)))
    assert (codes(empty), empty.reasons[0].do) == (["no_requests"], ("skep submit web FILE",))
    over = why_run(wait(Ledger(9, done=9), unread=9), view())
    assert codes(over) == ["pages_unread", "nothing_left"]
    assert over.reasons[1].do[0] == "skep runs finish web"


def kept(**fields: Any) -> JobRun:
    usual = {"holder": "c1", "held_until": NOW + 9, "fed": True, "starts": 3}
    return JobRun("web", "quotes", "key", 1, NOW - 60, **{**usual, **fields})


def test_which_center_supervises_the_run_of_a_job() -> None:
    found = wait(Ledger())
    restarts = why_run(found, view(), SupervisionFacts(kept(log="a\nboom!\n"), NOW + 8))
    assert codes(restarts)[0] == "spider_restarting"
    assert "after 3 starts; last output: boom!" in restarts.reasons[0].text
    assert restarts.reasons[0].until == NOW + 8
    alone = why_run(found, view(), SupervisionFacts(kept(holder="", held_until=0.0)))
    assert codes(alone) == ["run_unattended", "no_requests"]
    assert alone.reasons[1].do == (), "its job puts them in"
    unfed = why_run(found, view(), SupervisionFacts(kept(fed=False)))
    assert codes(unfed)[0] == "to_be_fed"


# -- jobs


def planned(next_at: float | None = NOW + 240, **schedule: Any) -> Planned:
    words = schedule or {"cron": "0 12 * * *"}
    return Planned("quotes", Schedule(**words), int(NOW), next_at)


def job(enabled: bool = True, deleted: bool = False, **fields: Any) -> JobWait:
    document = Job("quotes", requests=("http://a/",), enabled=enabled)
    of = KeptJob(document, 1, "ann", NOW - 99, NOW - 9, deleted)
    usual = {"planned": None, "pending": (), "last": None, "going": ()}
    return JobWait(of, **{**usual, **fields})


def fire(state: FireState, reason: str = "", **fields: Any) -> Fire:
    return Fire("quotes", "2026-11-16T11:00:00Z", int(NOW - 3600), state, reason, **fields)


def test_a_job_that_is_off_or_deleted() -> None:
    off = why_job(job(enabled=False, planned=planned()), NOW)
    assert (off.state, off.waiting, codes(off)) == ("off", True, ["job_disabled"])
    gone = why_job(job(deleted=True), NOW)
    assert (gone.state, codes(gone)) == ("deleted", ["job_deleted"])
    assert "by ann" in gone.reasons[0].text


def test_a_job_that_is_scheduled() -> None:
    why = why_job(job(planned=planned()), NOW)
    assert (why.state, codes(why)) == ("idle", ["scheduled"])
    assert why.reasons[0].text == "scheduled for 12:04:00 UTC (cron 0 12 * * *, UTC)"
    assert (why.reasons[0].until, why.reasons[0].do) == (NOW + 240, ("skep job run quotes",))
    assert "none; it starts in 4 min; a due time during a run" in why.reasons[0].frees
    assert codes(why_job(job(), NOW)) == ["no_schedule"]
    assert codes(why_job(job(planned=planned(None)), NOW)) == ["never_due"]
    follows = why_job(job(planned=planned(None, after=("a", "b"))), NOW)
    assert codes(follows) == ["follows"]
    assert "after a successful run of a or b" in follows.reasons[0].text


def test_a_job_whose_run_goes_on() -> None:
    inner = why_run(wait(Ledger(9, waiting=9)), view(agent(NOW - 60)))
    queued = fire(FireState.QUEUED, "run web was still active")
    going = job(
        planned=planned(every=60, overlap=Overlap.QUEUE),
        going=("web", "older"),
        run=inner,
        pending=(queued,),
    )
    why = why_job(going, NOW)
    assert (why.state, why.waiting) == ("running", True)
    assert codes(why) == [
        "job_running",
        "no_live_agent",
        "to_be_packed",
        "fire_queued",
        "scheduled",
    ]
    assert "and 1 earlier run" in why.reasons[0].text
    assert why.reasons[0].do == ("skep why run:web",)
    assert "run web was still active; overlap: queue" in why.reasons[3].text


def test_due_times_on_their_way_and_the_last_one() -> None:
    claimed = fire(FireState.CLAIMED, center="c1", claimed_at=NOW - 4)
    why = why_job(job(pending=(claimed, fire(FireState.DUE))), NOW)
    assert (why.state, codes(why)[:2]) == ("due", ["fire_opening", "fire_due"])
    assert "center c1 has been opening the run" in why.reasons[0].text
    skipped = fire(FireState.SKIPPED, "run web was still active")
    why = why_job(job(planned=planned(), last=skipped), NOW)
    assert codes(why) == ["scheduled", "fire_skipped"]
    assert "was skipped: run web was still active" in why.reasons[1].text
    assert codes(why_job(job(planned=planned(), last=fire(FireState.FIRED)), NOW)) == ["scheduled"]


# -- what is promised

ROOT = Path(__file__).parents[3]
SOURCE = "\n".join(path.read_text() for path in sorted((ROOT / "skep/why").glob("*.py")))


def test_the_page_lists_every_code_and_no_other() -> None:
    """Programs rely on codes: a new one is written down, an old one stays."""
    page = (ROOT / "docs/how-to/why.md").read_text().partition("## The codes")[2]
    rows = re.findall(r"^\| (`[^|]+) \|", page, flags=re.MULTILINE)
    listed = {code for row in rows for code in re.findall(r"`(\w+)`", row)}
    made = {f"run_{state}" for state in RunState if state is not RunState.RUNNING}
    made |= {"done", "dead", "cancelled", "expired"}
    made |= {"fire_skipped", "fire_missed", "fire_coalesced"}
    assert listed == set(re.findall(r'Reason\(\s*"(\w+)"', SOURCE)) | made | {"leased"}


def test_every_command_that_is_offered_exists() -> None:
    told = set(re.findall(r'"skep ([a-z]+) ?([a-z]+)?', SOURCE))
    assert len(told) > 10
    context = click.Context(skep)
    for name, verb in sorted(told):
        command = skep.get_command(context, name)
        assert command is not None, name
        if verb and isinstance(command, click.Group):
            assert command.get_command(context, verb) is not None, f"{name} {verb}"
