"""Why the run of an application waits: one sentence for each waiting instance. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from skep.model.jobs.app import Instance, InstanceState
from skep.model.run import Run
from skep.model.wait_reasons import Reason, Why
from skep.placement.eligibility import Moment, Need, explain, shortfall
from skep.why.blocks import View
from skep.why.wording import counted, duration

#: Maximum instances that are listed one by one.
SHOWN = 10


def why_app(run: Run, instances: Sequence[Instance], view: View) -> Why:
    """For a running run; ended and paused runs are explained like any other run."""
    live = [one for one in instances if not one.ended]
    stuck = [reason for one in live for reason in _stuck(run, one, instances, view)]
    running = sum(one.state is InstanceState.RUNNING for one in live)
    reasons = stuck[:SHOWN]
    if running or not stuck:
        reasons.append(_going(run, running))
    waiting = bool(stuck) and not running
    return Why("run", run.id, str(run.state), waiting, reasons, run.id, f"job {run.job}")


def _going(run: Run, running: int) -> Reason:
    text = f"{counted(running, 'instance')} running" if running else "it is about to end"
    return Reason("instances_run", text, do=(f"skep app ls {run.id}",), facts={"running": running})


def _stuck(run: Run, one: Instance, others: Sequence[Instance], view: View) -> Iterable[Reason]:
    facts = {"instance": one.no, "agent": one.agent, "since": one.changed_at}
    since = duration(view.now - one.changed_at)
    if not one.agent:
        text = f"instance {one.no} waits: {_no_agent(run, one, others, view)}"
        frees = "wait for, or start, an agent that fits and has no instance of this run"
        do = (f"skep placement show {run.id}", "skep agent --center URL")
        yield Reason("instance_waits", text, frees, do=do, facts=facts)
    elif (silent := _silent(one.agent, view)) is not None:
        text = f"instance {one.no} is on agent {one.agent}, whose last heartbeat was {silent} ago"
        frees = "wait for the agent; another takes it after the job's lost_seconds"
        yield Reason("instance_agent_silent", text, frees, facts=facts)
    elif one.state is InstanceState.WAITING:
        text = f"instance {one.no} waits for agent {one.agent} to take it, for {since}"
        yield Reason("instance_untaken", text, "the agent takes it within seconds", facts=facts)
    elif one.state is InstanceState.STARTING:
        because = f": {one.reason}" if one.reason else ""
        text = f"instance {one.no} is starting on agent {one.agent}, for {since}{because}"
        read = f"skep app logs {run.id} --instance {one.no}"
        yield Reason("instance_starts", text, "wait for its agent", do=(read,), facts=facts)


def _no_agent(run: Run, one: Instance, others: Sequence[Instance], view: View) -> str:
    busy = {other.agent for other in others if other.no != one.no and not other.ended}
    fleet = view.fleet
    agents = [agent for agent in fleet.agents if agent.id not in busy]
    need = Need(run.settings.placement, run.settings.downloader)
    verdicts = explain(agents, need, Moment(fleet.now, fleet.alive_after))
    if any(verdict.fits for verdict in verdicts):
        return "it is about to be placed"
    return f"no agent is available for it: {shortfall(1, verdicts)}"


def _silent(agent: str, view: View) -> str | None:
    found = view.fleet.find(agent)
    if found is not None and found.alive(view.now, view.fleet.alive_after):
        return None
    return duration(view.now - found.seen_at) if found else "never"
