"""`skep agents`: lists the agents of a center, shows one, and sends commands to it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from skep.cli.commands.fleet.agent_sheet import AgentFacts, agent_sheet, pairs, state_of
from skep.cli.terminal.center_calls import ask, connected
from skep.cli.terminal.center_options import calls_center, listing_group
from skep.cli.terminal.filters import FilterCommand, ListQuery, filter_options, no_match, show_page
from skep.cli.terminal.line_wrapping import wide_option
from skep.cli.terminal.options import json_option
from skep.cli.terminal.output import age, say, show, show_exact, show_json, table
from skep.cli.terminal.settings_options import split_pair
from skep.cli.terminal.short_ids import Id
from skep.embed.center_address import CenterAddress
from skep.runtime.clock import SystemClock

if TYPE_CHECKING:
    from skep.wire.api.agents import AgentLine, Agents, AgentVerb
    from skep.wire.client.api import CenterApi

#: Commands that the agent itself executes, and results that its state does not describe.
SENT = ("drain", "restart", "exit")
RESULTS = {"revoke": "has no valid credential any more"}
#: Number of heartbeats in the chart of an agent.
POINTS = 60
HISTORY_SECONDS = 3600.0
HEAD = ("AGENT", "NAME", "GROUP", "STATE", "LAST HEARTBEAT", "ACTIVE", "RATE", "OUTBOX", "VERSION")


def _list(reach: CenterAddress, as_json: bool) -> None:
    answer = ask(reach, lambda api: api.agents.list())
    show_json(answer) if as_json else show(agents_table(answer.items))


@listing_group("agents", _list)
def command() -> None:
    """List agents; show, label, cordon, drain, restart, end or revoke one.

    AGENT is an id, or a name that only one agent has. An id wins over a name.
    """


@command.command("ls", cls=FilterCommand)
@filter_options("agents", 100)
@wide_option
@json_option
@calls_center
def ls(reach: CenterAddress, query: ListQuery, as_json: bool) -> None:
    """List agents by id: all, or those that match a filter such as `state:dead label:eu`."""
    if not query.given:
        _list(reach, as_json)
        return
    found = ask(reach, lambda api: _page(api, query))
    if as_json:
        show_json(found)
        return
    text = agents_table(found.items) if found.items else no_match(query, found, agents_table([]))
    show_page(text, found, len(found.items))


async def _page(api: CenterApi, query: ListQuery) -> Agents:
    from skep.wire.api.agents import AgentPage

    return await query.find(api, api.agents.list, AgentPage)


def agents_table(lines: Sequence[AgentLine]) -> str:
    """As text."""
    if not lines:
        return "no agents yet; `skep agent token` creates a token for a new agent"
    return table(HEAD, [_row(line) for line in lines], spare=("VERSION", "OUTBOX", "GROUP"))


def _row(line: AgentLine) -> tuple[object, ...]:
    who, vitals = line.agent.registration, line.agent.vitals
    return (
        Id(who.id),
        who.name,
        who.group,
        state_of(line),
        f"{age(line.last_beat_age)} ago",
        vitals.active if line.alive else "-",
        f"{vitals.rate:.0f}/s" if line.alive else "-",
        vitals.outbox,
        who.version or "-",
    )


def _who(said: str, answer: AgentLine) -> str:
    """What the user typed; the id is added if it was a name."""
    agent = answer.agent.id
    return agent if said == agent else f"{said} ({agent})"


def _verb(name: AgentVerb, text: str) -> None:
    @command.command(name, help=text, short_help=text)
    @click.argument("agent")
    @json_option
    @calls_center
    def act(reach: CenterAddress, agent: str, as_json: bool) -> None:
        answer = ask(reach, lambda api: api.agents.command(agent, name))
        sent = f"was sent the command {name}; `skep agents show` shows its acknowledgement"
        done = sent if name in SENT else RESULTS.get(name) or f"is {state_of(answer)}"
        show_json(answer) if as_json else show(f"{_who(agent, answer)} {done}")


_verb("enable", "Give work to an agent again.")
_verb("disable", "Give no more work to an agent; it may finish its work.")
_verb("cordon", "Give no new runs to an agent; it keeps its work and its runs.")
_verb("drain", "Give no more work to an agent, and take back what it has not started.")
_verb("restart", "Drain an agent and restart it.")
_verb("exit", "Drain an agent and end it.")
_verb("revoke", "Revoke the credential of an agent and give it no more work.")


@command.command("show")
@click.argument("agent")
@wide_option
@json_option
@calls_center
def show_one(reach: CenterAddress, agent: str, as_json: bool) -> None:
    """Show one agent: its state, its commands, and the runs that use it."""
    facts = asyncio.run(_facts(reach, agent))
    show_json(facts.plain()) if as_json else show(agent_sheet(facts, SystemClock().now()))


async def _facts(reach: CenterAddress, agent: str) -> AgentFacts:
    from skep.wire.api.agents import Since

    async with connected(reach) as client:
        detail = await client.api.agents.show(agent)
        found = detail.agent.id
        allocations = await client.api.placement.of_agent(found)
        history = await client.api.agents.vitals(found, Since(HISTORY_SECONDS, POINTS))
    return AgentFacts(detail, allocations.items, history.items)


@command.command("label")
@click.argument("agent")
@click.argument("changes", nargs=-1, required=True, metavar="NAME=VALUE|NAME-...")
@json_option
@calls_center
def label(reach: CenterAddress, agent: str, changes: tuple[str, ...], as_json: bool) -> None:
    """Set labels (NAME=VALUE) or remove them (NAME-)."""
    labels: dict[str, str | None] = {}
    for text in changes:
        name, value = (text[:-1], None) if text.endswith("-") else split_pair(text, "label")
        labels[name] = value
    from skep.wire.api.agents import Labels

    answer = ask(reach, lambda api: api.agents.label(agent, Labels(labels)))
    show_json(answer) if as_json else show(pairs(answer.agent.registration.labels))


@command.command("token")
@click.option(
    "--agent", default="", help="Id or name of the only agent that may use it. Default: any agent."
)
@json_option
@calls_center
def token(reach: CenterAddress, agent: str, as_json: bool) -> None:
    """Create a token for an agent. It is shown once; the center stores only a digest."""
    from skep.wire.api.tokens import AgentToken

    answer = ask(reach, lambda api: api.tokens.create_agent(AgentToken(agent)))
    show_json(answer) if as_json else show_exact(answer.token)
    if agent and answer.agent != agent:
        say(f"for agent {answer.agent}, which has the name {agent}")
