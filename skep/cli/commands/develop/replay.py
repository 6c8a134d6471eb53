"""`skep replay`: runs a changed spider on the archived pages of a run and compares the items.

Pages come from the archive; nothing is downloaded, and the run is not changed.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from typing import TYPE_CHECKING, Any

import click

from skep.cli.commands.crawl.spider_options import arguments_option, make_spider, spider_option
from skep.cli.terminal.center_options import calls_center
from skep.cli.terminal.exit_codes import ExitCode
from skep.cli.terminal.line_wrapping import wide_option
from skep.cli.terminal.options import json_option
from skep.cli.terminal.output import say, show, show_json, table
from skep.embed.center_address import CenterAddress

if TYPE_CHECKING:
    from skep.spiders.authoring.spider import Spider
    from skep.spiders.replay import Difference, Example

#: Maximum characters of a value in the output.
SHOWN = 100


@click.command("replay")
@click.argument("run")
@spider_option
@arguments_option
@wide_option
@json_option
@calls_center
def command(
    reach: CenterAddress, run: str, spider_name: str, arguments: tuple[str, ...], as_json: bool
) -> int:
    """Parse the archived pages of a run again and compare the items.

    Nothing is downloaded and nothing is changed. Shows which items were added, removed or
    changed, field by field. The exit code is 0 if there are no differences, otherwise 1.
    """
    from skep.runtime.logging import start_logging
    from skep.spiders.driving.page_parsing import Stop

    start_logging(sys.stderr, logging.WARNING, sentences=True)
    spider = make_spider(spider_name, arguments)
    try:
        difference = asyncio.run(_replay(reach, run, spider))
    except Stop as stop:
        say(f"error: {stop.sentence} ({stop.reason})")
        return ExitCode.FAILED
    show_json({"run": run, **_plain(difference)}) if as_json else show(in_words(difference))
    return ExitCode.OK if difference.is_none else ExitCode.FAILED


async def _replay(reach: CenterAddress, run: str, spider: Spider) -> Difference:
    from skep.cli.commands.results.archived_pages import archived_pages
    from skep.spiders.replay import Replay

    # In batches of blocks with their items: a run of any size fits into memory.
    replay = Replay(spider)
    async with reach.client() as client:
        async for found in archived_pages(client, run):
            kept: dict[int, list[dict[str, Any]]] = {}
            for item in found.items:
                kept.setdefault(item.request, []).append(item.data)
            for block in found.blocks:
                await replay.pages(block.pages, kept)
    return replay.difference


def _plain(difference: Difference) -> dict[str, Any]:
    import msgspec

    plain: dict[str, Any] = msgspec.to_builtins(difference)
    return plain


def in_words(difference: Difference) -> str:
    """The difference as text."""
    counts = {kind: getattr(difference, kind) for kind in ("same", "added", "removed", "changed")}
    lines = [
        f"{difference.pages} pages: {difference.kept} items stored, {difference.now} items now",
        ", ".join(f"{count} {kind}" for kind, count in counts.items()),
    ]
    if difference.errors:
        lines.append(f"{difference.errors} callbacks raised an exception")
    if difference.fields:
        rows = [(n, c.added, c.removed, c.changed) for n, c in difference.fields.items()]
        lines.append(table(("FIELD", "ADDED", "REMOVED", "CHANGED"), rows))
    lines += [_in_words(example) for example in difference.examples]
    return "\n".join(lines)


def _in_words(example: Example) -> str:
    what = f"{example.field} {example.kind}" if example.field else f"item {example.kind}"
    before, now = (f"{value!r:.{SHOWN}}" for value in (example.before, example.now))
    if example.kind == "changed":
        return f"{example.url}: {what}: {before} -> {now}"
    return f"{example.url}: {what}: {now if example.kind == 'added' else before}"
