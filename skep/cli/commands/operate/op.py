"""`skep op`: lists bulk operations, shows one, waits for it, gets its file, cancels it.

It only calls the center, which processes operations by itself.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from skep.cli.commands.operate.operation_start import download
from skep.cli.commands.operate.operation_view import exit_of, in_words, page_table, watch
from skep.cli.terminal.center_calls import ask, connected
from skep.cli.terminal.center_options import calls_center, listing_group
from skep.cli.terminal.filters import FilterCommand, ListQuery, filter_options, no_match, show_page
from skep.cli.terminal.line_wrapping import wide_option
from skep.cli.terminal.options import json_option
from skep.cli.terminal.output import show, show_json
from skep.embed.center_address import CenterAddress

if TYPE_CHECKING:
    from skep.wire.api.operations import OperationView

SHOWN = 20
_number = click.argument("operation", type=click.IntRange(0, 10**18 - 1))


@listing_group("op", lambda reach, as_json: _list(reach, SHOWN, 0, False, as_json))
def command() -> None:
    """List bulk operations; show, watch, download or cancel one.

    `skep bulk` starts them.
    """


@command.command("ls", cls=FilterCommand)
@filter_options("operations", SHOWN)
@click.option("--open", "only_open", is_flag=True, help="Only operations that have not ended.")
@click.option("--before", type=click.IntRange(0), default=0, help="Only lower numbers.")
@wide_option
@json_option
@calls_center
def ls(reach: CenterAddress, query: ListQuery, only_open: bool, before: int, as_json: bool) -> None:
    """List bulk operations, newest first: all, or those that match a filter (`act:retry`)."""
    if not query.words and not query.page:
        _list(reach, query.limit or SHOWN, before, only_open, as_json)
        return
    if before:
        raise click.UsageError("with a filter, continue with --page instead of --before")
    _search(reach, query, only_open, as_json)


def _search(reach: CenterAddress, query: ListQuery, only_open: bool, as_json: bool) -> None:
    from skep.wire.api.operations import WhichOperations

    page = ask(
        reach, lambda api: query.find(api, api.operations.list, WhichOperations, open=only_open)
    )
    if as_json:
        show_json(page)
        return
    text = page_table(page)
    show_page(text if page.items else no_match(query, page, text), page, len(page.items))


def _list(reach: CenterAddress, limit: int, before: int, only_open: bool, as_json: bool) -> None:
    from skep.wire.api.operations import WhichOperations

    which = WhichOperations(limit, before, only_open)
    page = ask(reach, lambda api: api.operations.list(which))
    show_json(page) if as_json else show(page_table(page))


@command.command("show")
@_number
@json_option
@calls_center
def show_one(reach: CenterAddress, operation: int, as_json: bool) -> None:
    """Show an operation: its progress, and the results by reason."""
    one = ask(reach, lambda api: api.operations.show(operation))
    show_json(one) if as_json else show(in_words(one))


@command.command("watch")
@_number
@json_option
@calls_center
def watch_one(reach: CenterAddress, operation: int, as_json: bool) -> int:
    """Wait until an operation has ended, and show it."""
    one = asyncio.run(_watched(reach, operation))
    show_json(one) if as_json else show(in_words(one))
    return exit_of(one)


async def _watched(reach: CenterAddress, operation: int) -> OperationView:
    async with connected(reach) as client:
        return await watch(client, operation)


@command.command("download")
@_number
@click.option("-o", "--output", default="-", help="File to write; default: standard output.")
@calls_center
def download_file(reach: CenterAddress, operation: int, output: str) -> None:
    """Download the file of an export that has ended: one JSON object per line."""
    asyncio.run(_downloaded(reach, operation, output))


async def _downloaded(reach: CenterAddress, operation: int, output: str) -> None:
    async with connected(reach) as client:
        await download(client, operation, output)


@command.command("cancel")
@_number
@json_option
@calls_center
def cancel(reach: CenterAddress, operation: int, as_json: bool) -> None:
    """Cancel an operation; what is done stays done."""
    one = ask(reach, lambda api: api.operations.cancel(operation))
    show_json(one) if as_json else show(in_words(one))
