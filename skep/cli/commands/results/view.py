"""`skep view`: saves, lists and removes views, which are filters of lists under a name.

It only calls the center; `@NAME` in a list command uses a view.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from skep.cli.terminal.center_calls import ask
from skep.cli.terminal.center_options import calls_center, center_group
from skep.cli.terminal.filters import FilterCommand, filter_argument, text_of
from skep.cli.terminal.line_wrapping import wide_option
from skep.cli.terminal.options import json_option
from skep.cli.terminal.output import show, show_json, table
from skep.embed.center_address import CenterAddress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from skep.model.view import View
    from skep.wire.client.api import CenterApi

HEAD = ("VIEW", "LIST", "OWNER", "SHARED", "FILTER")


def _lists(_context: object, _argument: object, incomplete: str) -> list[str]:
    from skep.wire.filter.tables import TABLES

    return [name for name in TABLES if name.startswith(incomplete)]


@center_group("view")
def command() -> None:
    """Save, list and remove views: filters of lists under a name."""


@command.command("save", cls=FilterCommand)
@click.argument("name")
@click.argument("resource", metavar="LIST", shell_complete=_lists)
@filter_argument()
@click.option("--shared", is_flag=True, help="Everyone sees it.")
@json_option
@calls_center
def save(
    reach: CenterAddress,
    name: str,
    resource: str,
    words: tuple[str, ...],
    shared: bool,
    as_json: bool,
) -> None:
    """Save a filter of LIST (`runs`, `jobs`, `requests`, ...) as NAME.

    For example: `skep view save broken runs state:failed since:2d`, then `skep runs ls @broken`.
    """
    view = ask(reach, lambda api: _saved(api, name, resource, words, shared))
    show_json(view) if as_json else show(f"saved; use it as @{view.name}")


async def _saved(
    api: CenterApi, name: str, resource: str, words: Sequence[str], shared: bool
) -> View:
    from skep.wire.api.people.views import NewView
    from skep.wire.filter.tables import TABLES

    text = await text_of(api, words, resource) if resource in TABLES else " ".join(words)
    return await api.views.save(name, NewView(resource, text, shared))


@command.command("ls")
@wide_option
@json_option
@calls_center
def ls(reach: CenterAddress, as_json: bool) -> None:
    """List your views, and those that others share."""
    found = ask(reach, lambda api: api.views.list())
    if as_json:
        show_json(found)
        return
    rows = [
        (v.name, v.resource, v.owner, "yes" if v.shared else "no", v.filter) for v in found.items
    ]
    show(table(HEAD, rows) if rows else "no views yet; `skep view save NAME LIST FILTER` saves one")


@command.command("rm")
@click.argument("name")
@json_option
@calls_center
def rm(reach: CenterAddress, name: str, as_json: bool) -> None:
    """Remove one of your views."""
    gone = ask(reach, lambda api: api.views.remove(name))
    show_json(gone) if as_json else show(f"removed {gone.name}")
