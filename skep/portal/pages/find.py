"""The command palette: finds pages, jobs, runs, agents, hosts and acts for a typed text.

Everything comes from lists of the API with a filter; a list that the caller may not read is left
out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import quote

from skep.model.filter.syntax import quoted_if_needed
from skep.portal.page import Data, Outcome, Page, PageCall
from skep.portal.panels import Refused, parts
from skep.wire.api.agents import AgentPage
from skep.wire.api.hosts import HostPage
from skep.wire.api.jobs import JobPage
from skep.wire.api.runs import RunPage

#: Results of each kind.
EACH = 6
_LONGEST = 100


async def show(call: PageCall) -> Outcome:
    """Results for `?text=`, by kind."""
    text = call.query.get("text", "").strip()[:_LONGEST]
    if not text:
        return Data({"items": []})
    api, wild = call.api, quoted_if_needed(text)
    found = await parts(
        jobs=api.jobs.list(JobPage(EACH, filter=f"name:*{wild}*")),
        runs=api.runs.list(RunPage(EACH, filter=f"id:*{wild}*")),
        agents=api.agents.list(AgentPage(f"name:*{wild}*", limit=EACH)),
        hosts=api.hosts.list(HostPage(EACH, filter=f"host:*{wild}*")),
    )
    root = call.request.scope.get("root_path", "")
    items = [
        {"kind": kind, "text": name, "url": f"{root}/{kind}/{quote(name, safe='')}", "note": note}
        for kind, answer in found.items()
        if not isinstance(answer, Refused)
        for name, note in _named(kind, answer.items)
    ]
    return Data({"items": items})


def _named(kind: str, items: Iterable[Any]) -> list[tuple[str, str]]:
    return [_NAMES[kind](one) for one in items]


_NAMES: dict[str, Callable[[Any], tuple[str, str]]] = {
    "jobs": lambda one: (one.job.name, one.job.note[:80]),
    "runs": lambda one: (one.id, str(one.state)),
    "agents": lambda one: (one.agent.id, one.agent.registration.name),
    "hosts": lambda one: (one.host, ""),
}

PAGES = (Page("find", "/find", show),)
