"""`skep version`: shows the installed version and the protocol version.

It makes no calls, so it works without a center.
"""

from __future__ import annotations

import platform

import click

from skep import __version__
from skep.cli.terminal.options import json_option
from skep.cli.terminal.output import show, show_json


@click.command("version")
@json_option
def command(as_json: bool) -> None:
    """Show the version."""
    if not as_json:
        show(f"skep {__version__}")
        return
    from skep.wire.messages import OLDEST_PROTOCOL, PROTOCOL

    show_json(
        {
            "version": __version__,
            "protocol": PROTOCOL,
            "oldest_protocol": OLDEST_PROTOCOL,
            "python": platform.python_version(),
        }
    )
