"""What filters see of a run, a job or an agent, by the names of the field tables. Pure.

For rows that are in memory: live updates, and conditions that no column answers. Requests are
answered by SQL alone.
"""

from __future__ import annotations

from skep.model.filter.states import AgentWord, JobKind, JobWord
from skep.model.fleet.agent import REVOKED, AgentView
from skep.model.jobs.job import Job, KeptJob
from skep.model.run import Run
from skep.model.states import RunState

#: A run in these states has ended; it no longer grows older.
ENDED_RUNS = (RunState.FINISHED, RunState.CANCELLED)
Facts = dict[str, object]


def run_facts(run: Run, now: float, requests: int, dead: int) -> Facts:
    """A run, with the numbers of its ledger."""
    changed = run.changed_at or run.created_at
    until = changed if run.state in ENDED_RUNS else now
    return {
        "id": run.id,
        "job": run.job,
        "state": run.state.value,
        "reason": run.reason,
        "requests": requests,
        "dead": dead,
        "duration": until - run.created_at,
        "created": run.created_at,
        "changed": changed,
        "label": run.labels,
    }


def job_facts(kept: KeptJob) -> Facts:
    """A job with its newest revision."""
    return {
        "name": kept.job.name,
        "state": _job_word(kept).value,
        "label": kept.job.labels,
        "kind": _job_kind(kept.job).value,
        "downloader": kept.job.downloader.kind,
        "customer": kept.job.customer,
        "note": kept.job.note,
        "author": kept.author,
        "revision": kept.revision,
        "created": kept.created_at,
        "changed": kept.changed_at,
    }


def agent_facts(view: AgentView, now: float, alive_after: float) -> Facts:
    """An agent as the center knows it; its labels are those that people see."""
    about = view.registration
    return {
        "id": view.id,
        "name": about.name,
        "state": agent_word(view, now, alive_after).value,
        "group": about.group,
        "label": about.labels,
        "kind": about.kinds,
        "version": about.version,
        "address": about.address,
        "os": about.os,
        "seen": view.seen_at,
        "registered": view.registered_at,
    }


def agent_word(view: AgentView, now: float, alive_after: float) -> AgentWord:
    """The state of an agent."""
    if view.aside == REVOKED:
        return AgentWord.REVOKED
    if not view.alive(now, alive_after):
        return AgentWord.DEAD
    if view.enabled:
        return AgentWord.ALIVE
    return AgentWord(view.aside or AgentWord.DISABLED)


def _job_word(kept: KeptJob) -> JobWord:
    if kept.deleted:
        return JobWord.DELETED
    return JobWord.ENABLED if kept.job.enabled else JobWord.DISABLED


def _job_kind(job: Job) -> JobKind:
    if job.app is not None:
        return JobKind.APP
    return JobKind.REQUESTS if job.spider is None else JobKind.SPIDER
