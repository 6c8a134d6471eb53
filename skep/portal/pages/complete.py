"""Completion of a filter: fields and words from the field tables, names from the API."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from skep.model.filter.syntax import quoted_if_needed
from skep.portal.page import Data, Outcome, Page, PageCall
from skep.portal.panels import Refused, part
from skep.wire.api.agents import AgentPage
from skep.wire.api.hosts import HostPage
from skep.wire.api.jobs import JobPage
from skep.wire.api.runs import RunPage
from skep.wire.filter.completion import Suggestion, complete
from skep.wire.filter.tables import TABLES

_LONGEST = 2000
#: Names of one kind that are offered.
NAMES = 20


async def show(call: PageCall) -> Outcome:
    """Suggestions for `?resource=&text=&at=`; an unknown resource has none."""
    resource = call.query.get("resource", "")
    table = TABLES.get(resource)
    text, at = call.query.get("text", "")[:_LONGEST], call.query.get("at", "")
    if table is None or not at.isdecimal():
        return Data({"items": []})
    asked: list[tuple[str, str]] = []

    def note(fact: str, beginning: str) -> Iterable[str]:
        asked.append((fact, beginning))
        return ()

    found = complete(text, int(at[:6]), table, note)
    if asked:
        names = await _names(call, resource, *asked[-1])
        found = complete(text, int(at[:6]), table, lambda _fact, _beginning: names)
    return Data({"items": [_plain(one) for one in found]})


def _plain(one: Suggestion) -> dict[str, object]:
    found: dict[str, object] = msgspec.to_builtins(one)
    return found


async def _names(call: PageCall, resource: str, fact: str, beginning: str) -> list[str]:
    """Names that begin so: of jobs, runs, agents and hosts."""
    wild = f"{quoted_if_needed(beginning)}*" if beginning else "*"
    kind = {"name": resource, "id": resource}.get(fact, f"{fact}s")
    if kind == "jobs":
        jobs = await part(call.api.jobs.list(JobPage(NAMES, filter=f"name:{wild}")))
        return [] if isinstance(jobs, Refused) else [one.job.name for one in jobs.items]
    if kind == "runs":
        runs = await part(call.api.runs.list(RunPage(NAMES, filter=f"id:{wild}")))
        return [] if isinstance(runs, Refused) else [one.id for one in runs.items]
    if kind == "agents":
        agents = await part(call.api.agents.list(AgentPage(f"id:{wild}", limit=NAMES)))
        return [] if isinstance(agents, Refused) else [one.agent.id for one in agents.items]
    if kind == "hosts":
        hosts = await part(call.api.hosts.list(HostPage(NAMES, filter=f"host:{wild}")))
        return [] if isinstance(hosts, Refused) else [one.host for one in hosts.items]
    return []


PAGES = (Page("complete", "/complete", show),)
