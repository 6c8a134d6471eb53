"""What the fields of runs, jobs and agents mean in SQL. Run by centers only.

Fields that are inside a packed document (an agent's group, a job's customer) have no column:
`compile.py` leaves them to `skep.model.filter.matching`.
"""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from skep.model.filter.checked import Condition
from skep.model.filter.facts import ENDED_RUNS
from skep.model.filter.states import AgentWord, JobWord
from skep.model.fleet.agent import REVOKED
from skep.model.states import RequestState
from skep.store.sql.engine.database import ACCEPTED
from skep.store.sql.filters.bindings import (
    Binding,
    Bindings,
    Scope,
    labelled,
    labelled_by_job,
    labelled_by_run,
    number_condition,
    number_of,
    text_condition,
    text_of,
    words_of,
)
from skep.store.sql.filters.requests import REQUEST_BINDINGS
from skep.store.sql.filters.text_matching import Expression, Truth
from skep.store.sql.schema.agents import agents
from skep.store.sql.schema.deliveries import deliveries
from skep.store.sql.schema.dispatch_log import dispatch_log
from skep.store.sql.schema.ended_work import notices
from skep.store.sql.schema.jobs import job_labels, jobs
from skep.store.sql.schema.people import audit_log
from skep.store.sql.schema.requests import tallies
from skep.store.sql.schema.runs import run_labels, runs
from skep.store.sql.schema.schedules import fires, schedules

# 0 and NULL both say that a run is still in its first state.
_CHANGED = sa.func.coalesce(sa.func.nullif(runs.c.changed_at, 0), runs.c.created_at)


def _tally(state: int) -> Expression:
    """A running count of a run."""
    query = sa.select(tallies.c.n).where(tallies.c.run == runs.c.no, tallies.c.state == state)
    return sa.func.coalesce(query.correlate(runs).scalar_subquery(), 0)


def _duration(conditions: Sequence[Condition], scope: Scope) -> Truth:
    ended = runs.c.state.in_([state.value for state in ENDED_RUNS])
    until = sa.case((ended, _CHANGED), else_=sa.literal(scope.now, sa.Float(53)))
    return number_condition(until - runs.c.created_at, conditions)


def _agent_state(conditions: Sequence[Condition], scope: Scope) -> Truth:
    age = sa.literal(scope.now, sa.Float(53)) - agents.c.seen_at
    aside = sa.func.nullif(agents.c.aside, "")
    word = sa.case(
        (aside == REVOKED, AgentWord.REVOKED.value),
        (age >= scope.alive_after, AgentWord.DEAD.value),
        (agents.c.enabled == 1, AgentWord.ALIVE.value),
        else_=sa.func.coalesce(aside, AgentWord.DISABLED.value),
    )
    return text_condition(word, conditions, scope)


def _job_state() -> Binding:
    kept = jobs.c.deleted == 0
    return words_of(
        {
            JobWord.ENABLED: sa.and_(kept, jobs.c.enabled == 1),
            JobWord.DISABLED: sa.and_(kept, jobs.c.enabled == 0),
            JobWord.DELETED: jobs.c.deleted == 1,
        }
    )


_RUNS: Bindings = {
    "id": text_of(runs.c.id),
    "job": text_of(runs.c.job),
    "state": text_of(runs.c.state),
    "reason": text_of(runs.c.reason),
    "requests": number_of(_tally(ACCEPTED)),
    "dead": number_of(_tally(RequestState.DEAD)),
    "duration": _duration,
    "created": number_of(runs.c.created_at),
    "changed": number_of(_CHANGED),
    "label": labelled(runs.c.no, run_labels.c.run),
}
_JOBS: Bindings = {
    "name": text_of(jobs.c.name),
    "state": _job_state(),
    "author": text_of(jobs.c.author),
    "revision": number_of(jobs.c.revision),
    "created": number_of(jobs.c.created_at),
    "changed": number_of(jobs.c.changed_at),
    "label": labelled(jobs.c.name, job_labels.c.job),
}
_AGENTS: Bindings = {
    "id": text_of(agents.c.id),
    "state": _agent_state,
    "seen": number_of(agents.c.seen_at),
    "registered": number_of(agents.c.registered_at),
}
_AUDIT: Bindings = {
    "user": text_of(audit_log.c.who),
    "action": text_of(audit_log.c.action),
    "object": text_of(audit_log.c.object),
    "outcome": text_of(audit_log.c.outcome),
    "address": text_of(audit_log.c.address),
    "at": number_of(audit_log.c.at),
}

_DISPATCHES: Bindings = {
    "kind": text_of(dispatch_log.c.kind),
    "run": text_of(dispatch_log.c.run),
    "job": text_of(dispatch_log.c.job),
    "lane": text_of(dispatch_log.c.lane),
    "reason": text_of(dispatch_log.c.reason),
    "center": text_of(dispatch_log.c.center),
    "size": number_of(dispatch_log.c.size),
    "at": number_of(dispatch_log.c.at),
    "label": labelled_by_run(dispatch_log.c.run),
}
_FIRES: Bindings = {
    "job": text_of(fires.c.job),
    "state": text_of(fires.c.state),
    "run": text_of(fires.c.run),
    "center": text_of(fires.c.center),
    "reason": text_of(fires.c.reason),
    "due": number_of(fires.c.due_at),
    "label": labelled_by_job(fires.c.job),
}

#: Lists that are short, or seldom searched by anything but their key.
_IN_MEMORY = ("alerts", "hosts", "tokens", "failure-groups", "operations", "users", "sessions")
#: By resource. What has no binding is decided in memory.
BINDINGS: dict[str, Bindings] = {
    "dispatches": _DISPATCHES,
    "fires": _FIRES,
    **{name: {} for name in _IN_MEMORY},
    "deliveries": {"label": labelled_by_run(deliveries.c.run)},
    "notices": {"label": labelled_by_run(notices.c.run)},
    "schedules": {"label": labelled_by_job(schedules.c.job)},
    "requests": REQUEST_BINDINGS,
    "runs": _RUNS,
    "jobs": _JOBS,
    "agents": _AGENTS,
    "audit": _AUDIT,
}
