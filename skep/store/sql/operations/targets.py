"""Objects that a filter finds, by their keys. Implements `Targets` of `store/ports/operations.py`.

Run by centers, on readers. A call reads a bounded number of rows (`filters/search.py`); it never
changes anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import sqlalchemy as sa

from skep.errors import InvalidInput
from skep.model.filter.checked import CheckedFilter
from skep.model.filter.facts import Facts, agent_facts, job_facts
from skep.model.filter.matching import matches
from skep.model.fleet.agent import AgentView
from skep.model.operations import Key
from skep.store.ports.operations import TargetCount, TargetExample, TargetPage
from skep.store.sql.agents.agents import view_of as agent_view
from skep.store.sql.engine.database import Database
from skep.store.sql.engine.predicates import in_list
from skep.store.sql.filters.compile import CompiledFilter, compile_filter
from skep.store.sql.filters.listings import LISTS
from skep.store.sql.filters.requests import run_numbers
from skep.store.sql.filters.search import Listing, count, search
from skep.store.sql.jobs.jobs import kept_job
from skep.store.sql.schema.agents import agents
from skep.store.sql.schema.jobs import jobs
from skep.store.sql.schema.requests import requests
from skep.store.sql.schema.runs import runs

Truth = sa.ColumnElement[bool]


@dataclass(frozen=True, slots=True)
class _Resource:
    """Where the objects of a resource are, and how they are shown."""

    #: The unique column that pages follow; the name by which an object is known.
    key: sa.Column[Any]
    name: sa.Column[Any]
    text: sa.Column[Any]
    #: Whether later objects have higher keys.
    grows: bool
    #: The objects that existed at a moment, in the state that they have.
    then: Callable[[float], list[Truth]]
    facts: Callable[[Any, float, float], Facts] | None = None


def _requests_then(moment: float) -> list[Truth]:
    died = requests.c.died_at
    return [requests.c.created_at <= moment, sa.or_(died.is_(None), died <= moment)]


def _runs_then(moment: float) -> list[Truth]:
    changed = runs.c.changed_at
    return [runs.c.created_at <= moment, sa.or_(changed.is_(None), changed <= moment)]


def _job_facts(row: Any, _now: float, _alive_after: float) -> Facts:
    return job_facts(kept_job(row))


def _agent_facts(row: Any, now: float, alive_after: float) -> Facts:
    view: AgentView = agent_view(row)
    return agent_facts(view, now, alive_after)


_RESOURCES = {
    "requests": _Resource(
        requests.c.id, requests.c.id, requests.c.uri, grows=True, then=_requests_then
    ),
    "runs": _Resource(runs.c.no, runs.c.id, runs.c.job, grows=True, then=_runs_then),
    "jobs": _Resource(
        jobs.c.name,
        jobs.c.name,
        jobs.c.author,
        grows=False,
        then=lambda moment: [jobs.c.created_at <= moment],
        facts=_job_facts,
    ),
    "agents": _Resource(
        agents.c.id, agents.c.id, agents.c.id, grows=False, then=lambda _: [], facts=_agent_facts
    ),
}
#: Resources whose filters are those of another one.
_SAME = {"failures": "requests"}


def newest_key(connection: sa.Connection, resource: str) -> str:
    """The highest key, as JSON; "" when keys do not grow with time."""
    found = _RESOURCES[_SAME.get(resource, resource)]
    if not found.grows:
        return ""
    return _json(connection.execute(sa.select(sa.func.max(found.key))).scalar() or 0)


class SqlTargets:
    """Reads `requests`, `runs`, `jobs` and `agents`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def count(self, wanted: CheckedFilter, alive_after: float) -> TargetCount:
        def work(connection: sa.Connection) -> TargetCount:
            compiled = self._compiled(connection, wanted, alive_after)
            found = count(connection, self._listing(wanted, alive_after), compiled)
            return TargetCount(found.n, found.exact)

        return await self._database.read(work)

    async def examples(
        self, wanted: CheckedFilter, alive_after: float, limit: int
    ) -> list[TargetExample]:
        def work(connection: sa.Connection) -> list[TargetExample]:
            compiled = self._compiled(connection, wanted, alive_after)
            listing = self._listing(wanted, alive_after)
            page = search(connection, listing, compiled, None, limit)
            return [TargetExample(row.target, row.about) for row in page.rows]

        return await self._database.read(work)

    async def page(
        self, wanted: CheckedFilter, alive_after: float, after: str, bound: str, limit: int
    ) -> TargetPage:
        last = _value(bound)

        def work(connection: sa.Connection) -> TargetPage:
            compiled = self._compiled(connection, wanted, alive_after)
            listing = self._listing(wanted, alive_after, _RESOURCES[wanted.resource].then, last)
            start = (_value(after),) if after else None
            page = search(connection, listing, compiled, start, limit)
            keys = [row.target for row in page.rows]
            if page.next is None or (last is not None and page.next[0] >= last):
                return TargetPage(keys, None)
            return TargetPage(keys, _json(page.next[0]))

        return await self._database.read(work)

    async def matching(
        self, wanted: CheckedFilter, alive_after: float, keys: Sequence[Key]
    ) -> set[Key]:
        def work(connection: sa.Connection) -> set[Key]:
            return matching_keys(connection, self._engine, wanted, alive_after, keys)

        return await self._database.read(work)

    async def objects(
        self, wanted: CheckedFilter, alive_after: float, keys: Sequence[Key]
    ) -> list[tuple[Key, Any]]:
        found, which = _RESOURCES[wanted.resource], LISTS[wanted.resource]

        def work(connection: sa.Connection) -> list[tuple[Key, Any]]:
            fit = matching_keys(connection, self._engine, wanted, alive_after, keys)
            if not fit:
                return []
            query = which.listing.query.where(_one_of(found, sorted(fit, key=str)))
            query = query.add_columns(found.name.label("target")).order_by(found.key)
            return [(row.target, which.item(row)) for row in connection.execute(query)]

        return await self._database.read(work)

    async def runs_of(self, requests_: Sequence[Key]) -> list[str]:
        some = in_list(requests.c.id, [int(key) for key in requests_])
        query = sa.select(requests.c.run).where(some).distinct()

        def work(connection: sa.Connection) -> list[str]:
            # Two queries: a planner that joins them may look at every run.
            numbers = list(connection.execute(query).scalars())
            names = sa.select(runs.c.id).where(in_list(runs.c.no, numbers)).order_by(runs.c.no)
            return list(connection.execute(names).scalars())

        return await self._database.read(work)

    @property
    def _engine(self) -> str:
        return self._database.dialect.name

    def _compiled(
        self, connection: sa.Connection, wanted: CheckedFilter, alive_after: float
    ) -> CompiledFilter:
        return compiled_filter(connection, self._engine, wanted, alive_after)

    def _listing(
        self,
        wanted: CheckedFilter,
        alive_after: float,
        then: Callable[[float], list[Truth]] | None = None,
        last: Any = None,
    ) -> Listing:
        found = _RESOURCES[wanted.resource]
        query = _columns(found) if then is None or found.facts else _names(found)
        if then is not None:
            query = query.where(*then(wanted.now))
        if last is not None:
            query = query.where(found.key <= last)
        return Listing(query, found.key, newest_first=False, facts=_facts_of(wanted, alive_after))


def matching_keys(
    connection: sa.Connection,
    engine: str,
    wanted: CheckedFilter,
    alive_after: float,
    keys: Sequence[Key],
) -> set[Key]:
    """Those of the keys that match; for a transaction that depends on it."""
    compiled = compiled_filter(connection, engine, wanted, alive_after)
    found = _RESOURCES[wanted.resource]
    some = _one_of(found, keys)
    query = (_columns(found) if compiled.rest.terms else _names(found)).where(some)
    rows = connection.execute(query.where(*compiled.conditions)).all()
    facts = _facts_of(wanted, alive_after)
    if not compiled.rest.terms or facts is None:
        return {row.target for row in rows}
    return {row.target for row in rows if matches(compiled.rest, facts(row))}


def _one_of(found: _Resource, keys: Sequence[Key]) -> Truth:
    if found.name is requests.c.id:
        return in_list(requests.c.id, [int(key) for key in keys])
    return found.name.in_([str(key) for key in keys])


def _columns(found: _Resource) -> sa.Select[Any]:
    shown = (found.key, found.name.label("target"), found.text.label("about"))
    return sa.select(*shown, found.key.table) if found.facts else sa.select(*shown)


def _names(found: _Resource) -> sa.Select[Any]:
    """Without the texts, which a search for keys does not need."""
    return sa.select(found.key, found.name.label("target"))


def _facts_of(
    wanted: CheckedFilter, alive_after: float
) -> Callable[[Any], Mapping[str, object]] | None:
    facts = _RESOURCES[wanted.resource].facts
    return None if facts is None else lambda row: facts(row, wanted.now, alive_after)


def compiled_filter(
    connection: sa.Connection, engine: str, wanted: CheckedFilter, alive_after: float
) -> CompiledFilter:
    """Raises InvalidInput for a filter that neither a column nor a row answers."""
    known = run_numbers(connection, wanted, engine)
    compiled = compile_filter(wanted, engine, alive_after, known)
    if compiled.rest.terms and _RESOURCES[wanted.resource].facts is None:
        names = ", ".join(compiled.rest.terms[0].facts)
        raise InvalidInput(f"{wanted.resource} cannot be searched by {names} yet; leave it out")
    return compiled


def _json(key: Any) -> str:
    return msgspec.json.encode(key).decode()


def _value(text: str) -> Any:
    return msgspec.json.decode(text) if text else None
