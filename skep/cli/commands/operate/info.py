"""`skep info`: shows the state of everything on one screen; with --interval, repeatedly.

It makes a few read-only calls to one center, so it can run without a time limit.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from skep.cli.commands.fleet.agents import agents_table
from skep.cli.commands.results.runs import ShownRun, read_runs, runs_table
from skep.cli.terminal.center_calls import connected
from skep.cli.terminal.center_options import calls_center
from skep.cli.terminal.line_wrapping import wide_option
from skep.cli.terminal.options import json_option
from skep.cli.terminal.output import age, colored, show, show_json, table
from skep.cli.terminal.short_ids import Id
from skep.embed.center_address import CenterAddress
from skep.runtime.clock import SystemClock

if TYPE_CHECKING:
    from skep.wire.api.agents import Agents
    from skep.wire.api.center import AlertLine, Alerts, LanesView, LedgerView
    from skep.wire.api.storage import Disk
    from skep.wire.client import CenterClient

RUNS = 10
ALERTS = 5
CLEAR_SCREEN = "\x1b[H\x1b[2J"


@click.command("info")
@click.option("--run", help="Only this run.")
@click.option(
    "--interval",
    type=click.FloatRange(0.1),
    help="Refresh every N seconds, until Ctrl-C.",
)
@wide_option
@json_option
@calls_center
def command(reach: CenterAddress, run: str | None, interval: float | None, as_json: bool) -> None:
    """Show the state of everything on one screen.

    The first line is the ledger: the accepted requests always equal the sum of all states.
    """
    asyncio.run(_show(reach, run, interval, as_json))


async def _show(
    reach: CenterAddress, run: str | None, interval: float | None, as_json: bool
) -> None:
    clock = SystemClock()
    async with connected(reach) as client:
        while True:
            view = await (_of_run(client, run) if run else _of_all(client))
            if interval and sys.stdout.isatty():
                click.echo(CLEAR_SCREEN, nl=False)
            show_json(view.plain()) if as_json else show(_screen(view, clock.now()))
            if not interval:
                return
            await clock.sleep(interval)


@dataclass(frozen=True, slots=True)
class Fleet:
    """What is shown in addition to the runs when no run was named."""

    lanes: LanesView
    agents: Agents
    alerts: Alerts
    disk: Disk


@dataclass(frozen=True, slots=True)
class Overview:
    """Everything on the screen."""

    address: str
    ledger: LedgerView
    runs: list[ShownRun]
    fleet: Fleet | None = None

    def plain(self) -> dict[str, Any]:
        """As plain data, for JSON."""
        head: dict[str, Any] = {"address": self.address, "ledger": self.ledger}
        if self.fleet is None:
            return {**head, "runs": [one.view for one in self.runs]}
        return {
            **head,
            "lanes": self.fleet.lanes.items,
            "agents": self.fleet.agents.items,
            "runs": [one.plain() for one in self.runs],
            "alerts": self.fleet.alerts.items,
            "disk": self.fleet.disk,
        }


async def _of_run(client: CenterClient, run: str) -> Overview:
    from skep.wire.api.center import WhichLedger
    from skep.wire.api.route import CALL_SECONDS

    api = client.api_within(CALL_SECONDS)
    view, ledger = await asyncio.gather(api.runs.show(run), api.center.ledger(WhichLedger(run=run)))
    return Overview(client.address, ledger, [ShownRun(view)])


async def _of_all(client: CenterClient) -> Overview:
    from skep.wire.api.center import WhichAlerts
    from skep.wire.api.route import CALL_SECONDS

    api = client.api_within(CALL_SECONDS)
    ledger, lanes, agents, alerts, disk = await asyncio.gather(
        api.center.ledger(),
        api.center.lanes(),
        api.agents.list(),
        api.center.alerts(WhichAlerts("open")),
        api.storage.disk(),
    )
    fleet = Fleet(lanes, agents, alerts, disk)
    return Overview(client.address, ledger, await read_runs(client, RUNS), fleet)


def _screen(view: Overview, now: float) -> str:
    parts = [f"{view.address}\n{_ledger_line(view.ledger)}"]
    fleet = view.fleet
    if fleet is not None:
        if fleet.disk.trouble:
            parts.append(colored(f"nothing is leased: {fleet.disk.trouble}", "red"))
        lanes = (f"{lane.lane} {lane.requests}/{lane.limit}" for lane in fleet.lanes.items)
        parts.append("lanes  " + "  ".join(lanes))
        parts.append(agents_table(fleet.agents.items))
    parts.append(runs_table(view.runs))
    if fleet is not None and fleet.alerts.items:
        parts.append(_alerts(fleet.alerts.lines()[:ALERTS], now))
    return "\n\n".join(parts)


def _ledger_line(view: LedgerView) -> str:
    line = view.ledger.line()
    return colored(line, "red") if view.unaccounted else line


def _alerts(alerts: Sequence[AlertLine], now: float) -> str:
    rows = [
        (one.kind, Id(one.subject), one.times, age(now - one.last_at), one.detail) for one in alerts
    ]
    return table(("ALERT", "ABOUT", "TIMES", "LAST", "DETAIL"), rows, spare=("TIMES",))
