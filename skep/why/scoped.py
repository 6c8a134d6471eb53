"""An explanation for a caller with a scope: without agents, runs and sums of others. Pure.

Reasons about the thing itself stay as they are. Those about what all runs share (agents, lanes,
hosts, disk) keep their code and their time, and lose names and numbers. A code that is not listed
here counts as shared.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from msgspec.structs import replace

from skep.model.wait_reasons import Reason, Why

#: Reasons that name nothing but the thing itself, its run or job, and the host of a request.
_OWN = frozenset(
    {
        *("done", "dead", "cancelled", "expired", "block_ended", "expires", "retry"),
        *("run_paused", "run_failed", "run_finished", "run_cancelled", "dead_requests"),
        *("left_open", "pages_unread", "driver_gone", "driver_decides", "waits_for_answers"),
        *("no_requests", "nothing_left", "to_be_packed", "to_be_fed", "run_unattended"),
        *("generator_running", "generator_failed", "generator_due", "spider_restarting"),
        *("instance_starts", "instances_run", "host_cooling", "host_probe"),
        *("job_deleted", "job_disabled", "scheduled", "follows", "no_schedule", "never_due"),
    }
)
#: Reasons of a job that may name its runs.
_OF_RUNS = frozenset(
    {
        *("job_running", "fire_due", "fire_opening", "fire_queued"),
        *("fire_fired", "fire_late", "fire_skipped", "fire_missed", "fire_coalesced"),
    }
)
#: Reasons that name one agent.
_OF_AGENT = frozenset({"leased", "agent_silent", "agent_busy", "target_agent"})
_SENTENCES = {
    "leased": "an agent has leased it",
    "agent_silent": "the agent that leased it sends no heartbeats",
    "agent_busy": "its agent works on blocks that it leased before",
    "host_held": "another block holds its host",
    "host_pace": "the rate limit of its host spaces requests",
    "parked": "it waits for its host",
    "in_lane": "it is in its lane; agents take blocks when they have capacity",
    "lane_full": "its lane is full",
    "to_be_offered": "its block will be put into a lane",
    "disk_full": "the center's disk is full",
    "bus_down": "the lanes cannot be reached",
    "job_running": "a run of it has not ended",
}
_NO_AGENT = "no agent is available for it"
_SHARED = "it waits for something outside your scope"


def without_others(why: Why, agents: AbstractSet[str], runs: AbstractSet[str]) -> Why:
    """`agents`: those inside the scope; `runs`: those of the job that are outside."""
    return replace(why, reasons=[_told(reason, agents, runs) for reason in why.reasons])


def named_runs(why: Why) -> set[str]:
    """The runs that the explanation of a job names."""
    return {str(run) for reason in why.reasons for run in reason.facts.get("runs", ())}


def _told(reason: Reason, agents: AbstractSet[str], runs: AbstractSet[str]) -> Reason:
    if reason.code in _OWN or (reason.code in _OF_RUNS and not runs):
        return reason
    if reason.code in _OF_AGENT and reason.facts.get("agent") in agents:
        return reason
    return Reason(reason.code, _sentence(reason.code), until=reason.until)


def _sentence(code: str) -> str:
    of_agents = any(word in code for word in ("agent", "instance", "chain"))
    return _SENTENCES.get(code, _NO_AGENT if of_agents else _SHARED)
