"""What the shell offers while a filter is typed: fields, words, and names that a center knows.

Imported only while a shell completes. It asks a center for names with a short time limit, and
never raises: without a center there are only fields and words.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from skep.wire.filter.completion import ValuesOf, complete, no_values
from skep.wire.filter.tables import TABLES

if TYPE_CHECKING:
    import click
    from click.shell_completion import CompletionItem

    from skep.embed.center_address import CenterAddress
    from skep.wire.client.api import CenterApi

#: Seconds that a center may take; a shell waits meanwhile.
PATIENCE = 3.0
#: Names of one call.
NAMES = 50


def suggestions(
    resource: str, incomplete: str, values_of: ValuesOf = no_values
) -> list[CompletionItem]:
    """What the shell offers for a half-written term."""
    from click.shell_completion import CompletionItem

    if incomplete.startswith("@"):
        views = values_of(f"@{resource}", incomplete[1:])
        return [CompletionItem(f"@{name}", help="saved view") for name in views]
    if resource not in TABLES:
        return []
    found = complete(incomplete, len(incomplete), TABLES[resource], values_of)
    return [
        CompletionItem(incomplete[: one.start] + one.text + incomplete[one.end :], help=one.help)
        for one in found
    ]


def known_values(context: click.Context, resource: str) -> ValuesOf:
    """Names that the center of this command line knows, for a filter of this resource."""

    def values_of(fact: str, beginning: str) -> Iterable[str]:
        noun = resource[:-1] if fact in {"id", "name"} else fact
        ask = _of_views(fact[1:]) if fact.startswith("@") else _NAMES.get(noun)
        if ask is None:
            return ()
        try:
            found = asyncio.run(_asked(_address(context), ask, beginning))
        except Exception:  # noqa: BLE001 - a shell cannot show an error
            return ()
        return [name for name in found if name.startswith(beginning)]

    return values_of


Ask = Callable[["CenterApi", str], Awaitable[Sequence[str]]]


async def _asked(reach: CenterAddress, ask: Ask, beginning: str) -> Sequence[str]:
    async with asyncio.timeout(PATIENCE), reach.client() as client:
        return await ask(client.api, beginning)


def _address(context: click.Context) -> CenterAddress:
    """The center that was typed for this command or one before it."""
    from skep.embed.center_address import CenterAddress

    given: dict[str, object] = dict.fromkeys(CenterAddress.__slots__)
    at: click.Context | None = context
    while at is not None:
        typed = {name: value for name, value in at.params.items() if name in given and value}
        given = {**given, **typed, **{name: one for name, one in given.items() if one}}
        at = at.parent
    return CenterAddress(**given)  # type: ignore[arg-type]  # click has converted them


def _starts(name: str, beginning: str) -> str:
    from skep.model.filter.syntax import quoted_if_needed

    return f"{name}:{quoted_if_needed(beginning)}*" if beginning else ""


async def _jobs(api: CenterApi, beginning: str) -> Sequence[str]:
    from skep.wire.api.jobs import JobPage

    page = JobPage(NAMES, filter=_starts("name", beginning))
    return [one.job.name for one in (await api.jobs.list(page)).items]


async def _runs(api: CenterApi, beginning: str) -> Sequence[str]:
    from skep.wire.api.runs import RunPage

    page = RunPage(NAMES, filter=_starts("id", beginning))
    return [one.id for one in (await api.runs.list(page)).items]


async def _agents(api: CenterApi, beginning: str) -> Sequence[str]:
    from skep.wire.api.agents import AgentPage

    page = AgentPage(_starts("id", beginning), limit=NAMES)
    return [one.agent.id for one in (await api.agents.list(page)).items]


async def _hosts(api: CenterApi, beginning: str) -> Sequence[str]:
    from skep.wire.api.hosts import HostPage

    page = HostPage(NAMES, filter=_starts("host", beginning))
    return [one.host for one in (await api.hosts.list(page)).items]


def _of_views(resource: str) -> Ask:
    async def views(api: CenterApi, _beginning: str) -> Sequence[str]:
        return [one.name for one in (await api.views.list()).items if one.resource == resource]

    return views


#: Noun: how its names are found.
_NAMES: dict[str, Ask] = {"job": _jobs, "run": _runs, "agent": _agents, "host": _hosts}
