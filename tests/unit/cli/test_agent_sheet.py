"""One agent as people are shown it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from skep.cli.commands.fleet.agent_sheet import AgentFacts, agent_sheet, sparkline, why_idle
from skep.model.fleet.agent import AgentView, Order, Registration, Vitals
from skep.wire.api.agents import AgentDetail


def line(alive: bool = True, orders: Sequence[Order] = (), **fields: Any) -> AgentDetail:
    about = Registration("a1", "attic", labels={"dc": "eu"}, address="10.0.0.7", os="linux")
    known: dict[str, Any] = {"enabled": True, "registered_at": 0.0, "seen_at": 90.0, **fields}
    return AgentDetail(AgentView(about, **known), alive, 2.0, list(orders))


def test_a_sparkline_fits_its_values() -> None:
    assert sparkline([0, 1, 2, 4]) == "▁▃▅█"
    assert sparkline([0.0, 0.5, 1.0], 1.0) == "▁▅█"
    assert sparkline([0, 0]) == "▁▁"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"alive": False}, "it sends no heartbeats"),
        ({"enabled": False, "aside": "cordoned"}, "it keeps its runs and gets no new ones"),
        ({"enabled": False, "aside": "draining"}, "it is draining: it returns its work"),
        ({"enabled": False, "aside": "revoked", "alive": False}, "`skep agent token --agent a1`"),
        ({"enabled": False}, "it is disabled; `skep agents enable a1`"),
        ({"vitals": Vitals(outbox=3)}, "results on its disk wait"),
        ({}, "there is no work for it"),
    ],
)
def test_why_it_does_not_work(given: dict[str, Any], words: str) -> None:
    assert words in why_idle(line(**given))


def test_an_agent_that_works_needs_no_reason() -> None:
    assert why_idle(line(vitals=Vitals(active=2))) == ""


def test_everything_about_it_is_on_the_sheet() -> None:
    """C2: labels, group, address, session, orders with outcomes, trouble, history."""
    vitals = Vitals(rate=3.0, trouble="the downloader of run r died", trouble_age=9.0)
    shown = line(orders=[Order(4, "drain", 80.0, 85.0, "done")], vitals=vitals)
    history = [(1.0, Vitals(rate=1.0, cpu=0.5)), (2.0, Vitals(rate=2.0, cpu=1.0))]
    sheet = agent_sheet(AgentFacts(shown, history=history), 100.0)
    for words in ("dc=eu", "10.0.0.7", "default", "run r died, 9.0 s before", "done, 15 s ago"):
        assert words in sheet
    assert "rate      ▅█  requests/s in the last hour" in sheet
