"""`skep secret`: stores secrets in the center, lists and removes them, and changes their key.

A value is read from the terminal or from standard input, never from an argument.
"""

from __future__ import annotations

import sys
from typing import Literal

import click

from skep.cli.terminal.center_calls import ask
from skep.cli.terminal.center_options import calls_center
from skep.cli.terminal.line_wrapping import wide_option
from skep.cli.terminal.options import json_option
from skep.cli.terminal.output import age, show, show_json, table
from skep.embed.center_address import CenterAddress
from skep.model.people.stored_secret import SECRET_BYTES
from skep.runtime.clock import SystemClock

USES = click.Choice(["apps", "notices"])
HEAD = ("SECRET", "USE", "CHANGED", "BY", "KEY", "READABLE")


@click.group("secret")
def command() -> None:
    """Set, list and remove stored secrets; change the key that encrypts them.

    Jobs and settings name a secret. A file of that name in DATA/secrets wins over a stored one.
    """


@command.command("set")
@click.argument("name")
@click.option("--use", type=USES, default="apps", show_default=True, help="Who may read it.")
@json_option
@calls_center
def set_secret(
    reach: CenterAddress, name: str, use: Literal["apps", "notices"], as_json: bool
) -> None:
    """Store a secret. The value is asked for, or read from standard input.

    For example: `skep secret set registry < token.txt`. Line ends at the end are removed.
    """
    from skep.wire.api.people.secrets import NewSecret

    body = NewSecret(_value(name), use)
    view = ask(reach, lambda api: api.secrets.set(name, body))
    show_json(view) if as_json else show(f"stored {view.name} for {view.use}, key {view.key}")


@command.command("ls")
@wide_option
@json_option
@calls_center
def ls(reach: CenterAddress, as_json: bool) -> None:
    """List stored secrets, without values."""
    found = ask(reach, lambda api: api.secrets.list())
    if as_json:
        show_json(found)
        return
    now = SystemClock().now()
    rows = [
        (one.name, one.use, age(now - one.changed_at), one.changed_by, one.key, _yes(one.readable))
        for one in found.items
    ]
    show(table(HEAD, rows) if rows else "no secrets are stored; `skep secret set NAME` stores one")


@command.command("rotate")
@click.option(
    "--new-key/--no-new-key",
    default=True,
    show_default=True,
    help="Make a new key; off = use the first key of the file.",
)
@json_option
@calls_center
def rotate(reach: CenterAddress, new_key: bool, as_json: bool) -> None:
    """Encrypt all stored secrets with another key, while everything runs.

    With several centers, put the new key first into the key file of each of them, keep the old one
    as the second line, and then use --no-new-key once.
    """
    from skep.wire.api.people.secrets import Rotation

    done = ask(reach, lambda api: api.secrets.rotate(Rotation(new_key)))
    text = f"encrypted {done.secrets} secrets with the key {done.key}"
    show_json(done) if as_json else show(text)


@command.command("rm")
@click.argument("name")
@json_option
@calls_center
def rm(reach: CenterAddress, name: str, as_json: bool) -> None:
    """Remove a stored secret."""
    gone = ask(reach, lambda api: api.secrets.remove(name))
    show_json(gone) if as_json else show(f"removed {gone.name}")


def _value(name: str) -> str:
    """Raises UsageError if there is none."""
    if sys.stdin.isatty():
        text = f"Value of {name}"
        prompted: str = click.prompt(text, hide_input=True, confirmation_prompt=True, err=True)
        return prompted
    value = sys.stdin.read(SECRET_BYTES + 1).rstrip("\r\n")
    if not value:
        raise click.UsageError(
            "no value on standard input; type the command in a terminal to be asked for it, or"
            " write the value to standard input"
        )
    return value


def _yes(value: bool) -> str:
    return "yes" if value else "no"
