"""Agents by name: people type what they gave a machine, an id where that is not enough (C2)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace

from skep.cli.main import skep
from skep.errors import InvalidInput
from skep.testing.doubles.manual_agents import ManualAgent
from skep.testing.grounds.centers import RunningCenter, running_center

#: Id and name. The name of `x1` is another agent's id; two machines are called `twin`.
FLEET = {"x1": "x2", "x2": "büro 7, links", "x3": "attic", "t1": "twin", "t2": "twin"}


@pytest.fixture
async def center(tmp_path: Path) -> AsyncIterator[RunningCenter]:
    async with running_center(tmp_path, center_allocate_wait=0.0) as running:
        hands = [ManualAgent(running, agent) for agent in FLEET]
        for hand in hands:
            hand.about = replace(hand.about, name=FLEET[hand.about.id])
            await hand.start()
        yield running
        for hand in hands:
            await hand.die()


async def invoke(center: RunningCenter, *words: str) -> Result:
    """A command, run beside this loop."""
    token = center.folder / "for-the-cli.token"
    token.write_text(center.admin.token)
    where = ["--center", center.url, "--token-file", str(token)]
    return await asyncio.to_thread(CliRunner().invoke, skep, [*words, *where])


async def said(center: RunningCenter, *words: str) -> str:
    result = await invoke(center, *words)
    assert result.exit_code == 0, result.output
    return result.output


def at(name: str, rest: str = "") -> str:
    return f"/api/v1/agents/{quote(name, safe='')}{rest}"


async def view(center: RunningCenter, name: str) -> Any:
    return (await center.admin.get(at(name))).json()["agent"]


async def test_every_verb_takes_a_name(center: RunningCenter) -> None:
    """Each says which agent it was."""
    verbs = {
        "disable": "disabled",
        "cordon": "cordoned",
        "enable": "alive",
        "drain": "was sent the command drain",
    }
    for verb, state in verbs.items():
        text = await said(center, "agents", verb, "attic")
        assert text.startswith("attic (x3) ")
        assert state in text
        assert (await view(center, "x3"))["enabled"] is (verb == "enable")
    assert (await view(center, "x1"))["enabled"] is True


async def test_orders_labels_and_sheets_by_name(center: RunningCenter) -> None:
    await said(center, "agents", "exit", "attic")
    assert (await center.admin.get(at("x3"))).json()["orders"][0]["name"] == "exit"
    assert "room=1" in await said(center, "agents", "label", "attic", "room=1")
    sheet = await said(center, "agents", "show", "attic")
    assert "x3" in sheet
    assert "room=1" in sheet
    await said(center, "agents", "token", "--agent", "attic")
    assert "attic (x3) has no valid credential" in await said(center, "agents", "revoke", "attic")
    assert (await view(center, "x3"))["enabled"] is False


async def test_an_id_wins_over_a_name(center: RunningCenter) -> None:
    """x1 is called x2: a caller that writes x2 means the agent with that id."""
    assert (await view(center, "x2"))["registration"]["name"] == "büro 7, links"
    assert (await said(center, "agents", "cordon", "x2")).startswith("x2 is")
    assert (await view(center, "x1"))["enabled"] is True
    assert (await view(center, "büro 7, links"))["registration"]["id"] == "x2"


async def test_a_name_of_several_is_refused_with_their_ids(center: RunningCenter) -> None:
    """And nothing is done to any of them."""
    words = "2 agents have the name 'twin'; use the id of one of them: t1 (alive), t2 (alive)"
    for path in (at("twin"), at("twin", "/vitals"), at("twin", "/allocations")):
        assert (await center.admin.get(path)).problem().detail == words
    problem = (await center.admin.post(at("twin", "/drain"))).problem()
    assert (problem.status, problem.code, problem.detail) == (400, "invalid_input", words)
    result = await invoke(center, "agents", "drain", "twin")
    assert isinstance(result.exception, InvalidInput)
    assert result.exception.detail == words
    labels = await center.admin.put(at("twin", "/labels"), {"labels": {"a": "b"}})
    assert labels.problem().detail == words
    for agent in ("t1", "t2"):
        assert (await view(center, agent))["enabled"] is True


async def test_no_agent_of_that_name(center: RunningCenter) -> None:
    """An invalid name is an error that says so; an unknown one is not found."""
    wrong = {"nobody": 404, "é": 404, "x" * 201: 400, "a\0b": 400, "\n": 400}
    for name, status in wrong.items():
        for rest in ("", "/vitals", "/allocations"):
            assert (await center.admin.get(at(name, rest))).problem().status == status
        assert (await center.admin.post(at(name, "/drain"))).problem().status == status


async def test_a_preview_by_name(center: RunningCenter) -> None:
    """Who leaves must be known; who would come may be new."""
    preview = "/api/v1/placement/preview"
    by_name = (await center.admin.get(f"{preview}?remove=attic")).json()
    assert by_name == (await center.admin.get(f"{preview}?remove=x3")).json()
    assert {move["source"] for move in by_name["hashed"]["moves"]} == {"x3"}
    comes = (await center.admin.get(f"{preview}?add=brand-new")).json()
    assert {move["to"] for move in comes["hashed"]["moves"]} == {"brand-new"}
    assert (await center.admin.get(f"{preview}?remove=nobody")).problem().status == 404
    assert "t1 (alive)" in (await center.admin.get(f"{preview}?remove=twin")).problem().detail
    shown = await said(center, "placement", "preview", "--remove", "attic")
    assert "KEYS THEN" in shown


async def test_tokens_by_name(center: RunningCenter) -> None:
    """The token is for the agent that has the name; else for a new id."""
    tokens = {"agents": "/api/v1/agent-tokens", "agent": "/api/v1/join-tokens"}
    for group, path in tokens.items():
        for given, agent in (("attic", "x3"), ("x2", "x2"), ("brand-new", "brand-new"), ("", "")):
            made = (await center.admin.post(path, {"agent": given})).json()
            assert made["agent"] == agent
        assert (await center.admin.post(path, {"agent": "twin"})).problem().status == 400
        assert (await center.admin.post(path, {"agent": "é"})).problem().status == 400
        shown = await said(center, group, "token", "--agent", "attic")
        assert "for agent x3, which has the name attic" in shown
    kept = (await center.admin.get("/api/v1/tokens")).json()["items"]
    assert "attic" not in {line["token"]["subject"] for line in kept}
