"""`skep group`: groups of users, which limit what their members see and change, by label."""

from __future__ import annotations

import click

from skep.cli.terminal.center_calls import ask
from skep.cli.terminal.center_options import calls_center
from skep.cli.terminal.line_wrapping import wide_option
from skep.cli.terminal.options import json_option
from skep.cli.terminal.output import show, show_json, table
from skep.embed.center_address import CenterAddress

HEAD = ("GROUP", "LABELS")
NO_GROUPS = "no groups yet: users see everything; `skep group set NAME LABEL=VALUE`"


@click.group("group")
def command() -> None:
    """Create, list and delete groups of users.

    The members of a group see and change only objects that have one of its labels.
    """


@command.command("set")
@click.argument("name")
@click.argument("labels", nargs=-1, required=True, metavar="NAME=VALUE...")
@json_option
@calls_center
def set_(reach: CenterAddress, name: str, labels: tuple[str, ...], as_json: bool) -> None:
    """Create a group, or replace its labels."""
    from skep.wire.api.people.users import GroupLabels

    group = ask(reach, lambda api: api.users.set_group(name, GroupLabels(list(labels))))
    show_json(group) if as_json else show(f"{group.name}: {', '.join(group.labels)}")


@command.command("ls")
@wide_option
@json_option
@calls_center
def ls(reach: CenterAddress, as_json: bool) -> None:
    """List groups."""
    found = ask(reach, lambda api: api.users.groups())
    rows = [(group.name, ", ".join(group.labels)) for group in found.items]
    show_json(found) if as_json else show(table(HEAD, rows) if rows else NO_GROUPS)


@command.command("rm")
@click.argument("name")
@json_option
@calls_center
def rm(reach: CenterAddress, name: str, as_json: bool) -> None:
    """Delete a group without members."""
    group = ask(reach, lambda api: api.users.delete_group(name))
    show_json(group) if as_json else show(f"{group.name} is deleted")
