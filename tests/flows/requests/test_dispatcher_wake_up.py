"""Two centers, one of which dispatches: what comes in at the other does not wait for its look."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest

from skep.center import loops
from skep.lanes import dispatch
from skep.testing.grounds.centers import RunningCenter, two_centers
from skep.testing.grounds.queued_runs import fill, urls
from skep.testing.polling import until

#: Seconds for which no loop looks by itself, and for which the leader keeps its lease.
LONG = 300.0


@pytest.fixture
def no_loop_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "DISPATCH_EVERY", LONG)
    monkeypatch.setattr(dispatch, "LEADER_SECONDS", LONG)


async def waits_at(center: RunningCenter) -> bool:
    return center.services.signals.work.waiting > 0


@pytest.mark.usefixtures("no_loop_looks")
async def test_requests_at_another_center_are_dispatched_at_once(
    tmp_path: Path, shared: dict[str, str]
) -> None:
    """C8: whichever center is called, and whichever has the turn to dispatch."""
    # An agent that is played by hand does not beat.
    async with two_centers(tmp_path, shared, center_alive_after=LONG) as (one, two):
        await fill(one, "r", 10, block_size=10)
        await two.dispatched()  # the turn is with one of them from here on
        other = two if one.services.dispatcher.in_turn else one
        agent = other.hand_agent()
        await agent.register()
        (first,) = await agent.lease(wait=20)
        waiting = asyncio.create_task(agent.lease(wait=20))
        await until(partial(waits_at, other))
        await other.put("r", urls(10, "more"))
        (second,) = await waiting
        assert (first.size, second.size) == (10, 10)
        assert not other.services.dispatcher.in_turn, "it was not that center which did it"
