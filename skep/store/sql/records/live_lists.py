"""Lists for live updates. Implements `LiveLists` of `store/ports/live.py`. Run by centers.

Rows hold what people see in a list, and nothing that changes without an event, such as the time of
a heartbeat.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import sqlalchemy as sa

from skep.model.filter.checked import CheckedFilter
from skep.model.filter.facts import agent_facts, job_facts
from skep.model.live import LiveRow
from skep.model.states import RequestState
from skep.store.sql.agents.agents import view_of as agent_view
from skep.store.sql.engine.database import ACCEPTED, Database
from skep.store.sql.engine.predicates import in_list
from skep.store.sql.filters.search import Listing, search
from skep.store.sql.jobs.jobs import kept_job
from skep.store.sql.operations.targets import compiled_filter
from skep.store.sql.requests.requests import view_of
from skep.store.sql.schema.agents import agents
from skep.store.sql.schema.blocks import blocks
from skep.store.sql.schema.jobs import jobs
from skep.store.sql.schema.requests import requests, tallies
from skep.store.sql.schema.runs import runs

_COUNTED = {
    "accepted": (ACCEPTED,),
    "done": (int(RequestState.DONE),),
    "dead": (int(RequestState.DEAD),),
}
_AGENT_FACTS = ("name", "state", "group", "label", "version", "address", "os")
_JOB_FACTS = ("state", "kind", "customer", "note", "author", "revision", "changed")


class SqlLiveLists:
    """Reads `requests`, `runs`, `jobs` and `agents`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def page(self, wanted: CheckedFilter, alive_after: float, limit: int) -> list[LiveRow]:
        engine = self._database.dialect.name

        def work(connection: sa.Connection) -> list[LiveRow]:
            compiled = compiled_filter(connection, engine, wanted, alive_after)
            listing = _LISTINGS[wanted.resource](wanted.now, alive_after)
            found = search(connection, listing, compiled, None, limit)
            return _SHOWN[wanted.resource](connection, found.rows, wanted.now, alive_after)

        return await self._database.read(work)


def _requests(_now: float, _alive_after: float) -> Listing:
    query = sa.select(
        requests.c.id, requests, runs.c.id.label("run_id"), blocks.c.state.label("block_state")
    )
    query = query.join(runs, runs.c.no == requests.c.run)
    query = query.outerjoin(blocks, blocks.c.id == requests.c.block)
    return Listing(query, requests.c.id)


def _jobs(_now: float, _alive_after: float) -> Listing:
    query = sa.select(jobs.c.name, jobs)
    return Listing(
        query, jobs.c.name, newest_first=False, facts=lambda row: job_facts(kept_job(row))
    )


def _agents(now: float, alive_after: float) -> Listing:
    query = sa.select(agents.c.id, agents)
    return Listing(
        query,
        agents.c.id,
        newest_first=False,
        facts=lambda row: agent_facts(agent_view(row), now, alive_after),
    )


def _runs(_now: float, _alive_after: float) -> Listing:
    keys = (runs.c.created_at, runs.c.no)
    return Listing(sa.select(*keys, runs), keys)


_LISTINGS: dict[str, Callable[[float, float], Listing]] = {
    "requests": _requests,
    "runs": _runs,
    "jobs": _jobs,
    "agents": _agents,
}


def _show_requests(
    _c: sa.Connection, rows: Sequence[Any], _now: float, _alive_after: float
) -> list[LiveRow]:
    views = [view_of(row) for row in rows]
    return [
        LiveRow(
            str(view.id),
            {
                "id": view.id,
                "run": view.run,
                "uri": view.uri,
                "priority": view.priority,
                "state": view.state.name.lower(),
                "failures": view.failures,
                "created_at": view.created_at,
            },
        )
        for view in views
    ]


def _show_runs(
    connection: sa.Connection, rows: Sequence[Any], _now: float, _alive_after: float
) -> list[LiveRow]:
    counts: defaultdict[int, dict[int, int]] = defaultdict(dict)
    query = sa.select(tallies).where(in_list(tallies.c.run, [row.no for row in rows]))
    for found in connection.execute(query) if rows else ():
        counts[found.run][found.state] = int(found.n)
    return [
        LiveRow(
            row.id,
            {
                "id": row.id,
                "job": row.job,
                "state": row.state,
                "reason": row.reason or "",
                "created_at": row.created_at,
                "changed_at": row.changed_at or row.created_at,
                **{
                    name: sum(counts[row.no].get(state, 0) for state in states)
                    for name, states in _COUNTED.items()
                },
            },
        )
        for row in rows
    ]


def _show_jobs(
    _c: sa.Connection, rows: Sequence[Any], _now: float, _alive_after: float
) -> list[LiveRow]:
    facts = [job_facts(kept_job(row)) for row in rows]
    return [
        LiveRow(str(one["name"]), {"name": one["name"], **{name: one[name] for name in _JOB_FACTS}})
        for one in facts
    ]


def _show_agents(
    _c: sa.Connection, rows: Sequence[Any], now: float, alive_after: float
) -> list[LiveRow]:
    facts = [agent_facts(agent_view(row), now, alive_after) for row in rows]
    return [
        LiveRow(str(one["id"]), {"id": one["id"], **{name: one[name] for name in _AGENT_FACTS}})
        for one in facts
    ]


_SHOWN: dict[str, Callable[[sa.Connection, Sequence[Any], float, float], list[LiveRow]]] = {
    "requests": _show_requests,
    "runs": _show_runs,
    "jobs": _show_jobs,
    "agents": _show_agents,
}
