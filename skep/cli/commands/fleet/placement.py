"""`skep placement`: the agents of a run, why others are excluded, and what a change would move.

It only reads: it does not choose agents or move work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from skep.cli.terminal.center_calls import ask
from skep.cli.terminal.center_options import calls_center
from skep.cli.terminal.line_wrapping import wide_option
from skep.cli.terminal.options import json_option
from skep.cli.terminal.output import age, show, show_json, table
from skep.cli.terminal.short_ids import Id
from skep.embed.center_address import CenterAddress
from skep.runtime.clock import SystemClock

if TYPE_CHECKING:
    from skep.wire.api.placement import PlacementView, PreviewView, SeatLine


@click.group("placement")
def command() -> None:
    """Show the agents of a run and why others are excluded; preview moves."""


@command.command("show")
@click.argument("run")
@wide_option
@json_option
@calls_center
def show_placement(reach: CenterAddress, run: str, as_json: bool) -> None:
    """Show the agents of a run, and each other agent with the first rule that excludes it."""
    view = ask(reach, lambda api: api.placement.of_run(run))
    show_json(view) if as_json else show(placement_sheet(view, SystemClock().now()))


def placement_sheet(view: PlacementView, now: float) -> str:
    """As text."""
    lines = [f"run        {view.run}", f"placement  {view.words}"]
    if view.agents:
        chosen = [_slot(seat, now) for seat in view.agents]
        lines += ["", table(("CHOSEN", "STATE", "SINCE", "WHY"), chosen)]
    if not view.verdicts:
        return "\n".join([*lines, "", "no agents are known"])
    rows = [
        (Id(one.agent), one.name, f"no: {one.rule}" if one.rule else "yes", one.detail)
        for one in view.verdicts
    ]
    return "\n".join([*lines, "", table(("AGENT", "NAME", "MAY WORK", "BECAUSE"), rows)])


def _slot(seat: SeatLine, now: float) -> tuple[str, ...]:
    return Id(seat.agent), seat.state, f"{age(now - seat.since)} ago", seat.why or "-"


@command.command("preview")
@click.argument("run", required=False, default="")
@click.option("--remove", multiple=True, metavar="AGENT", help="Id or name of an agent to remove.")
@click.option("--add", multiple=True, metavar="AGENT", help="Id or name of an agent to add.")
@wide_option
@json_option
@calls_center
def show_preview(
    reach: CenterAddress, run: str, remove: tuple[str, ...], add: tuple[str, ...], as_json: bool
) -> None:
    """Show what would move if agents were added or removed; nothing is changed.

    With RUN, a hashed run, the preview uses its newest requests; without RUN, it uses
    generated keys over all agents.
    """
    if not remove and not add:
        raise click.UsageError("no agents are given; use --remove AGENT or --add AGENT")
    from skep.wire.api.placement import AgentChange

    change = AgentChange(",".join(remove), ",".join(add), run)
    view = ask(reach, lambda api: api.placement.preview(change))
    show_json(view) if as_json else show(preview_sheet(view))


def preview_sheet(view: PreviewView) -> str:
    """As text."""
    hashed = view.hashed
    lines = [
        f"keys       {view.of}",
        f"moved      {hashed.moved:,} of {hashed.keys:,}; ideal {hashed.ideal:,.0f}",
        f"imbalance  {hashed.imbalance_before:.2f} now, {hashed.imbalance_after:.2f} then",
    ]
    lines += [f"note       {note}" for note in view.notes]
    if hashed.shares:
        rows = [(Id(one.agent), one.before, one.after) for one in hashed.shares]
        lines += ["", table(("AGENT", "KEYS NOW", "KEYS THEN"), rows)]
    if view.runs:
        runs = [(Id(one.run), one.placement, one.effect) for one in view.runs]
        lines += ["", table(("RUN", "PLACEMENT", "WHAT HAPPENS"), runs)]
    return "\n".join(lines)
