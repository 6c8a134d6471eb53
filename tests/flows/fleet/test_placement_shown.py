"""Placement as people see it: by the API and on the command line (C4, fault 40)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from skep.cli.main import skep
from skep.testing.doubles.manual_agents import ManualAgent, agents_of, open_run
from skep.testing.grounds.centers import RunningCenter, running_center


@pytest.fixture
async def center(tmp_path: Path) -> AsyncIterator[RunningCenter]:
    async with running_center(tmp_path, center_allocate_wait=0.0) as running:
        yield running


@pytest.fixture
async def hands(center: RunningCenter) -> AsyncIterator[dict[str, ManualAgent]]:
    names = {"a": "eu", "b": "eu", "c": "us"}
    joined = {
        name: await ManualAgent(center, name, group=group).start() for name, group in names.items()
    }
    yield joined
    for hand in joined.values():
        await hand.die()


async def said(center: RunningCenter, *words: str) -> str:
    """The output of a command, run beside this loop."""
    token = center.folder / "for-the-cli.token"
    token.write_text(center.admin.token)
    where = ["--center", center.url, "--token-file", str(token)]
    result = await asyncio.to_thread(CliRunner().invoke, skep, [*words, *where])
    assert result.exit_code == 0, result.output
    return result.output


async def test_why_not_this_agent(center: RunningCenter, hands: dict[str, ManualAgent]) -> None:
    """C4: each agent with the first rule that it fails."""
    await open_run(center, "r", {"strategy": "fixed", "n": 1, "group": "eu"})
    (chosen,) = await agents_of(center, "r")
    view = (await center.admin.get("/api/v1/runs/r/placement")).json()
    rules = {one["agent"]: one["rule"] for one in view["verdicts"]}
    other = next(name for name in ("a", "b") if name != chosen)
    assert rules == {chosen: "", other: "chosen", "c": "group"}
    assert [(seat["agent"], seat["state"]) for seat in view["agents"]] == [(chosen, "present")]
    text = await said(center, "placement", "show", "r")
    assert "fixed(1) group=eu" in text
    assert "it is in group us, not in eu" in text


async def test_runs_and_agents_show_allocations(
    center: RunningCenter, hands: dict[str, ManualAgent]
) -> None:
    """C4: saved, and shown from both sides."""
    await open_run(center, "r", {"strategy": "fixed", "n": 1, "group": "us"})
    assert "chosen    c (present)" in await said(center, "runs", "show", "r")
    assert "fixed(1) group=us" in await said(center, "agents", "show", "c")
    assert "fixed(1)" not in await said(center, "agents", "show", "a")
    await center.admin.post("/api/v1/agents/c/disable")
    assert "chosen    c (disabled)" in await said(center, "runs", "show", "r")


async def test_a_preview_moves_only_what_must(
    center: RunningCenter, hands: dict[str, ManualAgent]
) -> None:
    """Fault 40: by made-up keys, and by the requests of a hashed run."""
    answer = await center.admin.get("/api/v1/placement/preview?remove=a")
    found: dict[str, Any] = answer.json()["hashed"]
    assert {move["source"] for move in found["moves"]} == {"a"}
    assert found["moved"] / found["ideal"] <= 1.15
    await open_run(center, "h", {"strategy": "hashed", "key": "uri", "group": "eu"})
    await center.put("h", [f"http://127.0.0.1/{n}" for n in range(500)])
    text = await said(center, "placement", "preview", "h", "--remove", "a")
    assert "500 newest requests of run h" in text
    assert "KEYS THEN" in text
    before = (await center.admin.get("/api/v1/placement/preview?remove=a&run=h")).json()
    assert [share["agent"] for share in before["hashed"]["shares"]] == ["a", "b"]


async def test_a_preview_tells_what_happens_to_runs(
    center: RunningCenter, hands: dict[str, ManualAgent]
) -> None:
    """C6: by the policy of each run that has chosen the agent."""
    wishes = {"group": "us", "when_gone": "wait", "patience": 7}
    await open_run(center, "r", {"strategy": "chained", "n": 1, **wishes})
    await open_run(center, "f", {"strategy": "fixed", "n": 1, "group": "us"})
    view = (await center.admin.get("/api/v1/placement/preview?remove=c")).json()
    effects = {one["run"]: one["effect"] for one in view["runs"]}
    assert effects == {
        "r": "none of its agents is left: it waits 7 s for them, then it stops",
        "f": "it waits until one of its agents is back",
    }


async def test_a_preview_of_several_agents_counts_them_together(
    center: RunningCenter, hands: dict[str, ManualAgent]
) -> None:
    """C5: a run is reported once, with who is left when all of them are gone; a run that chooses
    no agents is reported when no other agent fits."""
    await open_run(center, "two", {"strategy": "fixed", "n": 2, "group": "eu"})
    await open_run(center, "three", {"strategy": "fixed", "n": 3})
    await open_run(center, "eu", {"strategy": "hashed", "group": "eu"})
    await open_run(center, "all", {"strategy": "hashed"})
    one = (await center.admin.get("/api/v1/placement/preview?remove=a")).json()
    several = (await center.admin.get("/api/v1/placement/preview?remove=a,b,a")).json()
    assert {each["run"]: each["effect"] for each in one["runs"]} == {
        "two": "1 agent continues with it",
        "three": "2 agents continue with it",
    }
    assert sorted((each["run"], each["effect"]) for each in several["runs"]) == [
        ("eu", "no other agent is eligible: its requests wait until one is"),
        ("three", "1 agent continues with it"),
        ("two", "it waits until one of its agents is back"),
    ]


async def test_a_preview_says_who_has_no_keys(
    center: RunningCenter, hands: dict[str, ManualAgent]
) -> None:
    await center.admin.post("/api/v1/agents/a/disable")
    text = await said(center, "placement", "preview", "--remove", "a", "--add", "b")
    assert "a has no keys now: a person gives it no work" in text
    assert "b is there" in text


async def test_who_was_chosen_keeps_the_run(
    center: RunningCenter, hands: dict[str, ManualAgent]
) -> None:
    """C5: labels count when agents are chosen; afterwards they do not make it ineligible."""
    await center.admin.put("/api/v1/agents/a/labels", {"labels": {"tier": "1"}})
    await open_run(center, "r", {"strategy": "fixed", "n": 1, "labels": {"tier": "1"}})
    await center.admin.put("/api/v1/agents/a/labels", {"labels": {"tier": None}})
    view = (await center.admin.get("/api/v1/runs/r/placement")).json()
    rules = {one["agent"]: one["rule"] for one in view["verdicts"]}
    assert rules == {"a": "", "b": "labels", "c": "labels"}
    await center.put("r", ["http://127.0.0.1/1"])
    await center.dispatched()
    assert await hands["a"].uris(await hands["a"].lease(wait=5.0)) == ["http://127.0.0.1/1"]


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/placement/preview",
        "/api/v1/placement/preview?add=a&run=plain",
        "/api/v1/runs/%20/placement",
    ],
)
async def test_what_cannot_be_asked(center: RunningCenter, path: str) -> None:
    await center.open_run("plain")
    assert (await center.admin.get(path)).problem().status == 400
