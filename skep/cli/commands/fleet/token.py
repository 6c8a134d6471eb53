"""`skep token`: who may call the centers. A token is shown once, when it is made.

The center keeps digests alone, so a token that was lost cannot be shown again.
"""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import quote

import click

from skep.cli.terminal.center_options import calls_center
from skep.cli.terminal.durations import SPAN
from skep.cli.terminal.line_wrapping import wide_option
from skep.cli.terminal.options import json_option
from skep.cli.terminal.output import age, show, show_exact, show_json, table
from skep.embed.center_address import CenterAddress
from skep.runtime.clock import SystemClock

HEAD = ("TOKEN", "ROLE", "FOR", "NAME", "STATE", "MADE", "EXPIRES")


@click.group("token")
def command() -> None:
    """Make, list and revoke tokens of people and agents.

    viewer sees everything, operator works with runs and jobs, admin does the rest. Tokens
    with which agents join are made by `skep agent token`.
    """


async def _call(reach: CenterAddress, method: str, path: str, body: Any = None) -> dict[str, Any]:
    async with reach.client() as client:
        answer: dict[str, Any] = await client.call(method, path, body, dict)
        return answer


async def _all(reach: CenterAddress) -> list[dict[str, Any]]:
    """Page after page."""
    lines: list[dict[str, Any]] = []
    after = ""
    async with reach.client() as client:
        while True:
            page = await client.call("GET", f"/api/v1/tokens?after={after}", None, dict)
            lines += page["items"]
            if not (after := page.get("next") or ""):
                return lines


@command.command("add")
@click.option("--role", type=click.Choice(["viewer", "operator", "admin"]), required=True,
              help="What its owner may do.")  # fmt: skip
@click.option("--name", default="", help="Whose it is.")
@click.option("--expires", type=SPAN, help="Good for so long, such as 30d; else until revoked.")
@json_option
@calls_center
def add(reach: CenterAddress, role: str, name: str, expires: float | None, as_json: bool) -> None:
    """Make a token for a person or a program; only its digest is kept."""
    wish = {"role": role, "name": name, "seconds": expires}
    answer = asyncio.run(_call(reach, "POST", "/api/v1/tokens", wish))
    show_json(answer) if as_json else show_exact(answer["token"])


@command.command("ls")
@click.option("--all", "everything", is_flag=True, help="Used, revoked and expired ones too.")
@wide_option
@json_option
@calls_center
def ls(reach: CenterAddress, everything: bool, as_json: bool) -> None:
    """List tokens, without those of runs."""
    lines = asyncio.run(_all(reach))
    items = [line for line in lines if everything or line["state"] == "live"]
    show_json({"items": items}) if as_json else show(tokens_table(items, SystemClock().now()))


@command.command("revoke")
@click.argument("token")
@json_option
@calls_center
def revoke(reach: CenterAddress, token: str, as_json: bool) -> None:
    """Shut a token out, by the name that `skep token ls` gives: within 5 s, everywhere."""
    answer = asyncio.run(_call(reach, "DELETE", f"/api/v1/tokens/{quote(token, safe='')}"))
    show_json(answer) if as_json else show(f"{token} is {answer['state']}")


def tokens_table(lines: list[dict[str, Any]], now: float) -> str:
    """For people."""
    rows = [_row(line["token"], line["state"], now) for line in lines]
    return table(HEAD, rows, spare=("MADE",))


def _row(token: dict[str, Any], state: str, now: float) -> tuple[object, ...]:
    expires = token["expires_at"]
    left = "-" if expires is None else f"in {age(expires - now)}" if expires > now else "over"
    whose = token["used_by"] or token["subject"] or "-"
    made = f"{age(now - token['created_at'])} ago"
    return token["id"], token["role"], whose, token["note"] or "-", state, made, left
