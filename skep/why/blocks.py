"""Why a block is not done: it waits for an agent or a host, or it is leased. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from skep.model.hosts.politeness import Politeness
from skep.model.lane import Lane, lane_of
from skep.model.run import Run
from skep.model.states import CLAIMABLE, BlockState, RunState
from skep.model.wait_reasons import Reason, Why
from skep.store.ports.waits import BlockFacts, BlockWait, InHand
from skep.why.fleet import Fleet, needs_of, obstacles, surroundings
from skep.why.hosts import Asker, host_reasons
from skep.why.wording import counted, duration, moment

_RESTS = {
    RunState.PAUSED: ("run_paused", "is paused"),
    RunState.FAILED: ("run_failed", "has failed"),
    RunState.FINISHED: ("run_finished", "is finished"),
    RunState.CANCELLED: ("run_cancelled", "is cancelled"),
}


class View(msgspec.Struct, frozen=True):
    """The facts around the thing that is explained."""

    fleet: Fleet
    politeness: Politeness
    #: Blocks in the lanes; None when they were not read.
    in_lanes: frozenset[int] | None = None
    #: Agents that were chosen for the run; None = any agent may take it.
    chosen: frozenset[str] | None = None
    #: Of a chained run: by agent that is not available, the requests that only it may take.
    belonging: Mapping[str, int] = msgspec.field(default_factory=dict)

    @property
    def now(self) -> float:
        return self.fleet.now


def why_block(wait: BlockWait, view: View) -> Why:
    """Explains a block."""
    block = wait.block
    state = block.state.name.lower()
    if block.state not in {*CLAIMABLE, BlockState.USING}:
        return Why("block", str(block.id), state, False, [_ended(block, view.now)], block.run)
    reasons = block_reasons(wait, view)
    waiting = reasons[0].code != "leased"
    return Why("block", str(block.id), state, waiting, reasons, block.run)


def block_reasons(wait: BlockWait, view: View) -> list[Reason]:
    """Reasons why an open block, and every request in it, waits."""
    if wait.block.state is BlockState.USING:
        held = leased(wait.block, wait.ahead, view)
        rests = run_rests(wait.run, view.now)
        return [*held, *surroundings(view.fleet), *rests, *_hosts(wait, view)]
    needs = needs_of(wait.run.settings, wait.block.target, view.chosen)
    blocking = [*run_rests(wait.run, view.now), *obstacles(view.fleet, needs)]
    return [*blocking, *_hosts(wait, view), *_in_lane(wait.block, view, alone=not blocking)]


def run_rests(run: Run, now: float) -> list[Reason]:
    """The reason of a run that is not running: it dispatches nothing."""
    if run.state is RunState.RUNNING:
        return []
    code, words = _RESTS[run.state]
    since = run.changed_at or run.created_at
    because = f": {run.reason}" if run.reason else ""
    goes_on = run.state is not RunState.CANCELLED
    return [
        Reason(
            code,
            f"run {run.id} {words} since {moment(since, now)}{because}",
            "continue the run" if goes_on else "none; it has ended",
            do=(f"skep runs continue {run.id}",) if goes_on else (),
            facts={"run": run.id, "since": since, "reason": run.reason},
        )
    ]


def leased(block: BlockFacts, ahead: InHand | None, view: View) -> list[Reason]:
    """The reasons of a leased block."""
    agent, now = view.fleet.find(block.agent), view.now
    seen = agent.seen_at if agent else 0.0
    heard = (
        f"its last heartbeat was {duration(now - seen)} ago" if agent else "it is not registered"
    )
    facts = {
        "agent": block.agent,
        "since": block.changed_at,
        "lease_until": block.lease_until,
        "last_seen_at": seen,
        "open": block.open,
        "answer_by": block.answer_by,
    }
    told = (
        f"block {block.id} is leased to agent {block.agent} since"
        f" {moment(block.changed_at, now)}, lease until {moment(block.lease_until, now)}; {heard}"
    )
    if agent is None or not agent.alive(now, view.fleet.alive_after):
        frees = "none; within seconds the block is taken back and goes to another agent"
        return [Reason("agent_silent", told, frees, block.lease_until, ("skep agents",), facts)]
    frees = f"{counted(block.open, 'answer')} of {block.size} outstanding from the agent"
    if block.answer_by is not None:
        frees += f"; without any by {moment(block.answer_by, now)} another agent gets it"
    reasons = [Reason("leased", told, frees, facts=facts)]
    if ahead is not None and ahead.blocks:
        reasons.append(_busy(ahead))
    return reasons


def _busy(ahead: InHand) -> Reason:
    return Reason(
        "agent_busy",
        f"agent {ahead.agent} is busy: {counted(ahead.blocks, 'block')} with"
        f" {counted(ahead.requests, 'open request')} were leased to it before",
        "none; the agent processes them in order",
        facts={"agent": ahead.agent, "blocks": ahead.blocks, "requests": ahead.requests},
    )


def _hosts(wait: BlockWait, view: View) -> Iterable[Reason]:
    for host in wait.hosts:
        asker = Asker(view.now, view.politeness, wait.run.settings, block=wait.block.id)
        yield from host_reasons(host, asker)


def _in_lane(block: BlockFacts, view: View, *, alone: bool) -> list[Reason]:
    lanes = view.fleet.lanes
    if lanes is None:
        return []
    lane = lane_of(block.priority)
    filled, limit = lanes[lane]
    better = sum(lanes[other][0] for other in Lane if other < lane)
    facts = {"lane": lane.label, "requests": filled, "limit": limit, "better": better}
    outside = view.in_lanes is not None and block.id not in view.in_lanes
    if outside and filled + block.size > limit and filled:
        return [lane_full(lane, filled, limit)]
    if outside:
        text = f"block {block.id} will be put into lane {lane.label}"
        return [Reason("to_be_offered", text, "none; it is put there within seconds", facts=facts)]
    busy = len([one for one in view.fleet.alive() if one.enabled])
    whom = f"; {counted(busy, 'live agent')} have not taken it yet" if alone else ""
    text = (
        f"block {block.id} is in lane {lane.label} with {counted(filled, 'request')}, and"
        f" {counted(better, 'request')} in better lanes{whom}"
    )
    return [Reason("in_lane", text, "an agent takes it when it has capacity", facts=facts)]


def lane_full(lane: Lane, filled: int, limit: int) -> Reason:
    """The reason of work that waits for a full lane."""
    return Reason(
        "lane_full",
        f"lane {lane.label} is full: {filled}/{limit}",
        "wait until agents take blocks from it, or start more agents",
        do=("skep info", f"skep center --set lanes.{lane.label}_limit=N"),
        facts={"lane": lane.label, "requests": filled, "limit": limit},
    )


def _ended(block: BlockFacts, now: float) -> Reason:
    word = "succeeded" if block.state is BlockState.SUCCESS else "failed"
    because = f": {block.detail}" if block.detail else ""
    return Reason(
        "block_ended",
        f"block {block.id} {word} {duration(now - block.changed_at)} ago{because}",
        facts={"at": block.changed_at, "agent": block.agent, "detail": block.detail},
    )
