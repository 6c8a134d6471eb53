"""`skep info`: the state of everything on one screen; with --interval, again and again.

A few reads from one center; nothing is changed, so it may run for ever.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click
import msgspec

from skep.cli.commands.fleet.agents import agents_table
from skep.cli.commands.results.runs import read_runs, runs_table
from skep.cli.terminal.center_options import calls_center, run_path
from skep.cli.terminal.line_wrapping import wide_option
from skep.cli.terminal.options import json_option
from skep.cli.terminal.output import age, colored, show, show_json, table
from skep.cli.terminal.short_ids import Id
from skep.embed.center_address import CenterAddress
from skep.model.ledger import Ledger
from skep.runtime.clock import SystemClock

if TYPE_CHECKING:
    from skep.wire.client import CenterClient

RUNS = 10
ALERTS = 5
CLEAR_SCREEN = "\x1b[H\x1b[2J"


@click.command("info")
@click.option("--run", help="Only this run.")
@click.option(
    "--interval",
    type=click.FloatRange(0.1),
    help="Show it again every so many seconds, until Ctrl-C.",
)
@wide_option
@json_option
@calls_center
def command(reach: CenterAddress, run: str | None, interval: float | None, as_json: bool) -> None:
    """Show the state of everything on one screen.

    The first line is the ledger: what was accepted equals the sum of all states, always.
    """
    asyncio.run(_show(reach, run, interval, as_json))


async def _show(
    reach: CenterAddress, run: str | None, interval: float | None, as_json: bool
) -> None:
    clock = SystemClock()
    async with reach.client() as client:
        while True:
            view = await (_of_run(client, run) if run else _of_all(client))
            if interval and sys.stdout.isatty():
                click.echo(CLEAR_SCREEN, nl=False)
            show_json(view) if as_json else show(_screen(view, clock.now()))
            if not interval:
                return
            await clock.sleep(interval)


async def _of_run(client: CenterClient, run: str) -> dict[str, Any]:
    view, ledger = await asyncio.gather(
        client.call("GET", run_path(run), None, dict),
        client.call("GET", f"/api/v1/ledger?run={quote(run)}", None, dict),
    )
    return {"address": client.address, "ledger": ledger, "runs": [view]}


async def _of_all(client: CenterClient) -> dict[str, Any]:
    names = ("ledger", "lanes", "agents", "alerts", "storage/disk")
    calls = (client.call("GET", f"/api/v1/{name}", None, dict) for name in names)
    ledger, lanes, agents, alerts, disk = await asyncio.gather(*calls)
    return {
        "address": client.address,
        "ledger": ledger,
        "lanes": lanes["items"],
        "agents": agents["items"],
        "runs": await read_runs(client, RUNS),
        "alerts": alerts["items"],
        "disk": disk,
    }


def _screen(view: dict[str, Any], now: float) -> str:
    parts = [f"{view['address']}\n{_ledger_line(view['ledger'])}"]
    if trouble := view.get("disk", {}).get("trouble"):
        parts.append(colored(f"nothing is leased: {trouble}", "red"))
    if "lanes" in view:
        lanes = (f"{lane['lane']} {lane['requests']}/{lane['limit']}" for lane in view["lanes"])
        parts.append("lanes  " + "  ".join(lanes))
        parts.append(agents_table(view["agents"]))
    parts.append(runs_table(view["runs"]))
    if view.get("alerts"):
        parts.append(_alerts(view["alerts"][:ALERTS], now))
    return "\n\n".join(parts)


def _ledger_line(ledger: dict[str, Any]) -> str:
    line = msgspec.convert(ledger["ledger"], Ledger).line()
    return colored(line, "red") if ledger["unaccounted"] else line


def _alerts(alerts: list[dict[str, Any]], now: float) -> str:
    rows = [
        (
            alert["kind"],
            Id(alert["subject"]),
            alert["times"],
            age(now - alert["last_at"]),
            alert["detail"],
        )
        for alert in alerts
    ]
    return table(("ALERT", "ABOUT", "TIMES", "LAST", "DETAIL"), rows, spare=("TIMES",))
