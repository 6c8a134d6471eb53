"""`skep agents`: who works for the center, and what can be done to one of them."""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import quote

import click

from skep.cli.options import json_option
from skep.cli.output import age, show, show_json, table
from skep.cli.reach import Reach, reaches_center

HEAD = ("AGENT", "NAME", "GROUP", "STATE", "LAST BEAT", "ACTIVE", "RATE", "OUTBOX", "VERSION")


@click.group("agents", invoke_without_command=True)
@json_option
@reaches_center
@click.pass_context
def command(context: click.Context, reach: Reach, as_json: bool) -> None:
    """List agents; enable, disable or end one; make tokens."""
    context.obj = reach
    if context.invoked_subcommand is None:
        answer = asyncio.run(_call(reach, "GET", "/api/v1/agents"))
        show_json(answer) if as_json else show(agents_table(answer["items"]))


async def _call(reach: Reach, method: str, path: str, body: Any = None) -> dict[str, Any]:
    async with reach.client() as client:
        answer: dict[str, Any] = await client.call(method, path, body, dict)
        return answer


def agents_table(lines: list[dict[str, Any]]) -> str:
    """For people."""
    if not lines:
        return "no agents yet; `skep agent --center URL --token-file FILE` starts one"
    return table(HEAD, [_row(line) for line in lines])


def state_of(line: dict[str, Any]) -> str:
    """alive or dead by the center's clock; disabled is a person's wish."""
    if not line["alive"]:
        return "dead"
    return "alive" if line["agent"]["enabled"] else "disabled"


def _row(line: dict[str, Any]) -> tuple[object, ...]:
    who, vitals = line["agent"]["registration"], line["agent"]["vitals"]
    return (
        who["id"],
        who["name"],
        who["group"],
        state_of(line),
        f"{age(line['last_beat_age'])} ago",
        vitals["active"],
        f"{vitals['rate']:.0f}/s",
        vitals["outbox"],
        who["version"] or "-",
    )


def _verb(name: str, text: str) -> None:
    @command.command(name, help=text, short_help=text)
    @click.argument("agent")
    @json_option
    @reaches_center
    def act(reach: Reach, agent: str, as_json: bool) -> None:
        path = f"/api/v1/agents/{quote(agent, safe='')}/{name}"
        answer = asyncio.run(_call(reach, "POST", path))
        done = "was told to exit" if name == "exit" else f"is {state_of(answer)}"
        show_json(answer) if as_json else show(f"{agent} {done}")


_verb("enable", "Give it work again.")
_verb("disable", "Give it no more work; what it holds it may finish.")
_verb("exit", "Tell it to drain and end.")


@command.command("token")
@click.option("--agent", default="", help="The one agent that may use it; else any agent may.")
@json_option
@reaches_center
def token(reach: Reach, agent: str, as_json: bool) -> None:
    """Make a token for an agent; it is shown once, and only its digest is kept."""
    answer = asyncio.run(_call(reach, "POST", "/api/v1/agent-tokens", {"agent": agent}))
    show_json(answer) if as_json else show(answer["token"])
