"""`skep archive`: make rows again from archived pages, after the store lost them.

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
    """Make rows again from archived pages."""


@command.command("rebuild")
@json_option
@process_options
def rebuild(process: ProcessOptions, as_json: bool) -> None:
    """Make a request of every archived page that the store does not know.

    For a store that was lost or damaged, when there is no backup. The pages get a run of their
    own (`rebuilt-TIME`), so that bodies can be read and exported again. Which run asked for a
    page, failed attempts, items and waiting requests are not in the archive and stay lost.
    """
    from skep.embed.rebuild import rebuild as make_rows

    progress = say if process.verbose else lambda _: None
    done = asyncio.run(make_rows(process.settings(), SystemClock(), progress))
    if as_json:
        show_json(done)
        return
    show(f"{done.added} of {done.pages} archived pages were not known; they are in run {done.run}")
