"""Agents that a person has put aside: cordoned ones keep their runs, draining ones hand over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from skep.model.block import BlockReport
from skep.model.request import Outcome
from skep.testing.doubles.manual_agents import (
    PLACING,
    SITE,
    ManualAgent,
    agents_of,
    fill,
    joining,
    open_run,
)
from skep.testing.grounds.centers import RunningCenter, running_center, works_of
from skep.testing.polling import until


@pytest.fixture
async def center(tmp_path: Path) -> AsyncIterator[RunningCenter]:
    async with running_center(tmp_path, **PLACING) as running:
        yield running


@pytest.fixture
async def hands(center: RunningCenter) -> AsyncIterator[dict[str, ManualAgent]]:
    async with joining(center) as join:
        yield {name: await join(name) for name in ("a", "b")}


async def told(center: RunningCenter, agent: str, verb: str) -> None:
    assert (await center.admin.post(f"/api/v1/agents/{agent}/{verb}")).status == 200


async def rules(center: RunningCenter, run: str) -> dict[str, str]:
    view = (await center.admin.get(f"/api/v1/runs/{run}/placement")).json()
    return {one["agent"]: one["rule"] for one in view["verdicts"]}


@pytest.mark.parametrize("strategy", ["fixed", "chained"])
async def test_a_cordoned_agent_keeps_its_runs_and_gets_no_others(
    center: RunningCenter, hands: dict[str, ManualAgent], strategy: str
) -> None:
    """C3, C5: new work of a run that it was chosen for, and nothing else."""
    await open_run(center, "mine", {"strategy": strategy, "n": 1})
    (chosen,) = await agents_of(center, "mine")
    await told(center, chosen, "cordon")
    await center.open_run("anybody")
    await fill(center, "anybody", 5)
    await fill(center, "mine", 5)
    blocks = await hands[chosen].lease()
    assert {block.run for block in blocks} == {"mine"}
    for number in range(5):
        await open_run(center, f"new{number}", {"strategy": "fixed", "n": 1})
        assert await agents_of(center, f"new{number}") != [chosen]
    other = "b" if chosen == "a" else "a"
    assert await rules(center, "mine") == {chosen: "", other: "chosen"}
    assert (await rules(center, "anybody"))[chosen] == "cordoned"
    shown = (await center.admin.get("/api/v1/runs/mine")).json()["chosen"]
    assert [seat["state"] for seat in shown] == ["cordoned"]


async def test_a_cordoned_agent_without_a_run_is_refused(
    center: RunningCenter, hands: dict[str, ManualAgent]
) -> None:
    """C3: and hashed keys go to the others."""
    await open_run(center, "keys", {"strategy": "hashed", "key": "uri"})
    await told(center, "a", "cordon")
    await fill(center, "keys", 40)
    answer = await hands["a"].hand.call("lease", {"agent": "a"})
    assert (answer.status, "agent a is cordoned" in answer.problem().detail) == (403, True)
    done = await hands["b"].lease()
    assert sum(block.size for block in done) == 40


async def draining_chain(center: RunningCenter, hands: dict[str, ManualAgent], **wish: Any) -> str:
    """A chained run whose agent is being drained and has nothing in its hands."""
    await open_run(center, "chain", {"strategy": "chained", "n": 1, **wish})
    (chosen,) = await agents_of(center, "chain")
    await fill(center, "chain", 1)
    (block,) = await hands[chosen].lease(wait=5.0)
    (first,) = await hands[chosen].finish(block)
    await center.put("chain", [{"uri": f"{SITE}/found", "parent": first}])
    await told(center, chosen, "drain")
    return chosen


async def test_a_draining_agent_hands_its_chains_over(
    center: RunningCenter, hands: dict[str, ManualAgent]
) -> None:
    """C6: as the run says; here they begin again on another agent."""
    chosen = await draining_chain(center, hands, when_gone="restart")

    async def handed_over() -> bool:
        return await agents_of(center, "chain") not in ([], [chosen])

    await until(handed_over)
    allocation = await center.services.store.allocations.get("chain")
    assert allocation is not None
    assert f"agent {chosen} is being drained" in allocation.seats[0].why
    assert (await rules(center, "chain"))[chosen] == "draining"


async def test_a_run_that_stops_says_that_its_agent_is_drained(
    center: RunningCenter, hands: dict[str, ManualAgent]
) -> None:
    """C6: the policy `stop`."""
    chosen = await draining_chain(center, hands, when_gone="stop")

    async def failed() -> bool:
        return (await center.services.store.runs.get("chain")).state == "failed"

    await until(failed)
    run = await center.services.store.runs.get("chain")
    assert f"agent {chosen} is being drained, and 1 open request belongs to it" in run.reason


async def test_what_it_has_in_its_hands_it_may_end(
    center: RunningCenter, hands: dict[str, ManualAgent]
) -> None:
    """A draining agent that still works on a block of the chain is not given up."""
    await open_run(center, "chain", {"strategy": "chained", "n": 1, "when_gone": "stop"})
    (chosen,) = await agents_of(center, "chain")
    await fill(center, "chain", 1)
    (block,) = await hands[chosen].lease(wait=5.0)
    await told(center, chosen, "drain")
    await center.services.placement.gone_agents.step()
    assert (await center.services.store.runs.get("chain")).state == "running"
    await hands[chosen].finish(block)


async def test_pages_of_what_was_given_back_are_counted_once(
    center: RunningCenter, hands: dict[str, ManualAgent]
) -> None:
    """What a drained agent gave back is packed anew: `skep why` counts pages, not blocks."""
    await open_run(center, "web", {"strategy": "fixed", "n": 1})
    (chosen,) = await agents_of(center, "web")
    mine = hands[chosen]
    await fill(center, "web", 5)
    (block,) = await mine.lease()
    first = Outcome(works_of(block)[0].id, status=200)
    await mine.hand.report(BlockReport(block.id, block.token, [first], final=False))
    await told(center, chosen, "drain")
    await mine.hand.give_back(block)
    await center.services.placement.gone_agents.retarget()
    await told(center, chosen, "enable")
    done = 1
    async with asyncio.timeout(15):
        while done < 5:
            for again in await mine.lease(wait=1.0):
                done += len(await mine.finish(again))
    found = (await center.admin.get("/api/v1/why/runs/web")).json()["reasons"]
    assert "5 finished pages are not read yet" in [reason["text"] for reason in found]
