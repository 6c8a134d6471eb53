"""`skep token`: creates, lists and revokes tokens. A token is shown once, when it is created.

The center stores only digests, so a lost token cannot be shown again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import click

from skep.cli.terminal.center_calls import ask, connected
from skep.cli.terminal.center_options import calls_center
from skep.cli.terminal.durations import SPAN
from skep.cli.terminal.filters import FilterCommand, ListQuery, filter_options, no_match, show_page
from skep.cli.terminal.line_wrapping import wide_option
from skep.cli.terminal.options import json_option
from skep.cli.terminal.output import age, show, show_exact, show_json, table
from skep.embed.center_address import CenterAddress
from skep.runtime.clock import SystemClock

if TYPE_CHECKING:
    from skep.wire.api.tokens import TokenLine, Tokens
    from skep.wire.client.api import CenterApi

HEAD = ("TOKEN", "ROLE", "FOR", "NAME", "STATE", "SCOPE", "MADE", "EXPIRES", "USED")


@click.group("token")
def command() -> None:
    """Create, list and revoke tokens of users and agents.

    A viewer can read everything, an operator can also change runs and jobs, and an admin can
    do everything. To create a token with which an agent joins, use `skep agent token`.
    """


async def _all(reach: CenterAddress) -> list[TokenLine]:
    """All tokens, read page by page."""
    from skep.wire.api.tokens import TokenPage

    lines: list[TokenLine] = []
    after = ""
    async with connected(reach) as client:
        while True:
            page = await client.api.tokens.list(TokenPage(after=after))
            lines += page.items
            if not (after := page.next or ""):
                return lines


@command.command("add")
@click.option("--role", type=click.Choice(["viewer", "operator", "admin"]), required=True,
              help="Role of the token.")  # fmt: skip
@click.option("--name", default="", help="Name of its owner.")
@click.option("--expires", type=SPAN, help="Lifetime, such as 30d. Default: until revoked.")
@click.option("--scope", multiple=True, metavar="NAME=VALUE",
              help="Label of the objects that it may see; repeatable. Default: all.")  # fmt: skip
@json_option
@calls_center
def add(
    reach: CenterAddress,
    role: Literal["viewer", "operator", "admin"],
    name: str,
    expires: float | None,
    scope: tuple[str, ...],
    as_json: bool,
) -> None:
    """Create a token for a user or a program; the center stores only a digest."""
    from skep.wire.api.tokens import NewToken

    new = NewToken(role, name, expires, list(scope))
    answer = ask(reach, lambda api: api.tokens.create(new))
    show_json(answer) if as_json else show_exact(answer.token)


@command.command("ls", cls=FilterCommand)
@filter_options("tokens", 100)
@click.option("--all", "everything", is_flag=True, help="Include used, revoked and expired tokens.")
@wide_option
@json_option
@calls_center
def ls(reach: CenterAddress, query: ListQuery, everything: bool, as_json: bool) -> None:
    """List tokens, except those of runs.

    A filter such as `role:admin expires:<2026-12-01` lists tokens in any state.
    """
    now = SystemClock().now()
    if query.given:
        found = ask(reach, lambda api: _page(api, query))
        if as_json:
            show_json(found)
            return
        missing = no_match(query, found, tokens_table([], now))
        text = tokens_table(found.items, now) if found.items else missing
        show_page(text, found, len(found.items))
        return
    lines = asyncio.run(_all(reach))
    items = [line for line in lines if everything or line.state == "live"]
    show_json({"items": items}) if as_json else show(tokens_table(items, now))


async def _page(api: CenterApi, query: ListQuery) -> Tokens:
    from skep.wire.api.tokens import TokenPage

    return await query.find(api, api.tokens.list, TokenPage)


@command.command("revoke")
@click.argument("token")
@json_option
@calls_center
def revoke(reach: CenterAddress, token: str, as_json: bool) -> None:
    """Revoke a token, by the name in `skep token ls`; all centers reject it within 5 s."""
    answer = ask(reach, lambda api: api.tokens.revoke(token))
    show_json(answer) if as_json else show(f"{token} is {answer.state}")


def tokens_table(lines: Sequence[TokenLine], now: float) -> str:
    """As text."""
    if not lines:
        return "no valid tokens; `skep token add --role viewer` creates one"
    return table(HEAD, [_row(line, now) for line in lines], spare=("MADE", "SCOPE", "USED"))


def _row(line: TokenLine, now: float) -> tuple[object, ...]:
    token, expires = line.token, line.token.expires_at
    left = "-" if expires is None else f"in {age(expires - now)}" if expires > now else "expired"
    whose = token.used_by or token.subject or "-"
    made = f"{age(now - token.created_at)} ago"
    used = "-" if token.last_used_at is None else f"{age(now - token.last_used_at)} ago"
    scope = ", ".join(token.scope) or "-"
    return token.id, token.role, whose, token.note or "-", line.state, scope, made, left, used
