"""`skep archive`: rebuilds database rows from archived pages, after the store lost them.

Works on the data folder of this machine, while its center is stopped.
"""

from __future__ import annotations

import asyncio

import click

from skep.cli.terminal.options import ProcessOptions, json_option, process_options
from skep.cli.terminal.output import say, show, show_json
from skep.runtime.clock import SystemClock


@click.group("archive")
def command() -> None:
    """Rebuild database rows from archived pages."""


@command.command("rebuild")
@json_option
@process_options
def rebuild(process: ProcessOptions, as_json: bool) -> None:
    """Create a request for every archived page that the store does not contain.

    Use this if the store was lost or damaged and there is no backup. The pages are added to a
    new run (`rebuilt-TIME`), so that bodies can be read and exported again. The archive does
    not contain the original runs, failed attempts, items and waiting requests.
    """
    from skep.embed.rebuild import rebuild as make_rows

    progress = say if process.verbose else lambda _: None
    done = asyncio.run(make_rows(process.settings(), SystemClock(), progress))
    if as_json:
        show_json(done)
        return
    show(f"{done.added} of {done.pages} archived pages were not known; they are in run {done.run}")
