"""`skep watch`: prints changes of lists and objects as they happen.

It only reads. It connects again by itself; Ctrl-C ends it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import click

from skep.cli.terminal.center_calls import connected
from skep.cli.terminal.center_options import calls_center
from skep.cli.terminal.options import json_option
from skep.cli.terminal.output import harmless, show
from skep.embed.center_address import CenterAddress
from skep.runtime.clock import SystemClock

if TYPE_CHECKING:
    from skep.wire.api.monitoring.events import LiveEvent


#: Fields that are shown.
WORDS = ("state", "job", "act", "reason", "uri")
COUNTS = ("accepted", "done", "dead", "matched", "settled")


@click.command("watch")
@click.argument("watches", nargs=-1, required=True, metavar="WATCH...")
@click.option("--events", type=click.IntRange(0), default=0, help="Stop after N events; 0 = never.")
@json_option
@calls_center
def command(reach: CenterAddress, watches: tuple[str, ...], events: int, as_json: bool) -> None:
    """Print changes of runs, jobs, agents, requests or operations as they happen.

    A WATCH is a list with a filter, such as `runs:state:running` or `failures:job:quotes`, or one
    object, such as `run:NAME` or `operation:7`. With --json, each event is one line of JSON.
    """
    asyncio.run(_watch(reach, watches, events, as_json))


async def _watch(reach: CenterAddress, watches: tuple[str, ...], limit: int, as_json: bool) -> None:
    from skep.wire.client.events import follow

    count = 0
    async with connected(reach) as client:
        async for event in follow(client.api, watches, SystemClock()):
            _show(event, as_json)
            count += 1
            if count == limit:
                return


def _show(event: LiveEvent, as_json: bool) -> None:
    import msgspec

    if as_json:
        click.echo(msgspec.json.encode(event))
    else:
        show(in_words(event))


def in_words(event: LiveEvent) -> str:
    """An event as text."""
    data = event.data
    if event.event == "page":
        lines = [f"{data.watch}: {len(data.items)} rows"]
        return "\n".join([*lines, *(f"  {_row(row)}" for row in data.items)])
    if event.event == "change":
        changed = [f"{data.watch}: {_row(row)}" for row in data.changed]
        return "\n".join([*changed, *(f"{data.watch}: {key} is gone" for key in data.gone)])
    return harmless(data.reason)


def _row(row: dict[str, object]) -> str:
    name = row.get("id", row.get("name", ""))
    words = [str(row[key]) for key in WORDS if row.get(key)]
    counts = [f"{key} {row[key]}" for key in COUNTS if key in row]
    return harmless("  ".join([str(name), *words, *counts]))
