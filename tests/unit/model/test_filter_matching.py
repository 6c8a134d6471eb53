"""Filters evaluated on one row in memory."""

from __future__ import annotations

import pytest

from skep.model.filter.facts import Facts, agent_facts, job_facts, run_facts
from skep.model.filter.fields import FieldTable
from skep.model.filter.matching import matches
from skep.model.fleet.agent import AgentView, Registration
from skep.model.jobs.app import AppPart
from skep.model.jobs.job import Job, KeptJob, SpiderPart
from skep.model.run import Run, RunSettings
from skep.model.states import RunState
from skep.wire.filter.check import read_filter
from skep.wire.filter.tables import AGENTS, JOBS, RUNS

NOW = 1_700_000_000.0
AGENT = AgentView(
    Registration("a1", "Attic", "eu", {"team": "a", "ssd": ""}, kinds=("http", "curl")),
    enabled=True,
    registered_at=NOW - 50,
    seen_at=NOW - 5,
)


def fits(text: str, table: FieldTable, facts: Facts) -> bool:
    assert set(facts) == {field.name for field in table.fields if not field.of}
    return matches(read_filter(text, table, NOW), facts)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", True),
        ("group:eu", True),
        ("group:EU", False),
        ("group:e*", True),
        ("-group:eu", False),
        ("group:us,eu", True),
        ("name:Attic state:alive", True),
        ("name:Attic state:dead", False),
        ("label:team", True),
        ("label:team=a", True),
        ("label:team=b", False),
        ("label:team=a*", True),
        ("label:ssd", True),
        ("label:ssd=", True),
        ("-label:eu", True),
        ("label:*", True),
        ("kind:curl", True),
        ("kind:browser", False),
        ("seen:>10s", True),
        ("since:3s", False),
        ("version:*", False),
        ("-version:1.0", True),
        ("attIC", True),
        ("cellar", False),
    ],
)
def test_an_agent_fits(text: str, wanted: bool) -> None:
    assert fits(text, AGENTS, agent_facts(AGENT, NOW, 30)) is wanted


@pytest.mark.parametrize(
    ("enabled", "aside", "alive_after", "word"),
    [
        (True, "", 30, "alive"),
        (True, "", 1, "dead"),
        (False, "", 30, "disabled"),
        (False, "cordoned", 30, "cordoned"),
        (False, "draining", 30, "draining"),
        (False, "draining", 1, "dead"),
        (False, "revoked", 1, "revoked"),
    ],
)
def test_states_of_agents(enabled: bool, aside: str, alive_after: float, word: str) -> None:
    view = AgentView(Registration("a", "a"), enabled, NOW - 9, NOW - 5, aside=aside)
    assert agent_facts(view, NOW, alive_after)["state"] == word


def test_jobs() -> None:
    spider = Job("Quotes", note="Every week", customer="Acme", spider=SpiderPart("a:B"))
    facts = job_facts(KeptJob(spider, 3, "anna", NOW - 99, NOW - 9))
    assert fits("name:Quo* kind:spider state:enabled since:10s ACME week revision:3", JOBS, facts)
    assert not fits("kind:app", JOBS, facts)
    assert not fits("state:deleted", JOBS, facts)
    app = Job("web", app=AppPart(command=("true",)), enabled=False)
    facts = job_facts(KeptJob(app, 1, "", NOW, NOW))
    assert fits("kind:app state:disabled -author:*", JOBS, facts)
    assert fits("state:deleted", JOBS, job_facts(KeptJob(app, 1, "", NOW, NOW, deleted=True)))


def test_runs() -> None:
    run = Run("r1", "quotes", RunState.RUNNING, RunSettings(), NOW - 100)
    assert fits("state:open duration:100s dead:>0 requests:10", RUNS, run_facts(run, NOW, 10, 1))
    ended = Run("r1", "", RunState.FINISHED, RunSettings(), NOW - 100, changed_at=NOW - 40)
    facts = run_facts(ended, NOW, 10, 0)
    assert fits("state:ended duration:1m -job:* -dead:>0 changed:>41s", RUNS, facts)
