"""Progress of a command that processes files: one line on a terminal, nothing in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Callable

import click

from skep.cli.terminal.output import say


def file_progress(verbose: bool) -> Callable[[str], None]:
    """With -v every step is a line; else a terminal shows the newest step."""
    if verbose:
        return say
    if not sys.stderr.isatty():
        return lambda _: None
    return lambda text: click.echo(f"\r\x1b[K{text[:76]}", nl=False, err=True)


def end_progress(verbose: bool) -> None:
    """Clear the progress line."""
    if not verbose and sys.stderr.isatty():
        click.echo("\r\x1b[K", nl=False, err=True)
