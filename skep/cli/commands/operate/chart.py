"""`skep chart`: shows figures over time as lines of text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from skep.cli.commands.results.bulk_requests import moment
from skep.cli.terminal.center_calls import ask
from skep.cli.terminal.center_options import calls_center
from skep.cli.terminal.line_wrapping import wide_option
from skep.cli.terminal.options import json_option
from skep.cli.terminal.output import age, show, show_json, table
from skep.embed.center_address import CenterAddress

if TYPE_CHECKING:
    from skep.wire.api.monitoring.series import Chart, KnownSeries

BARS = "▁▂▃▄▅▆▇█"
#: Characters of one line.
WIDTH = 40
_AGE = "30min, 2h or 3d ago, or seconds since 1970."


@click.command("chart")
@click.argument("names", nargs=-1)
@click.option("--run", default="", help="Only this run.")
@click.option("--from", "since", callback=moment, help=f"Start: {_AGE} Default: 1h.")
@click.option("--to", "until", callback=moment, help=f"End: {_AGE} Default: now.")
@click.option(
    "--step", type=click.IntRange(0, 10**9), default=0, help="Seconds between two points."
)
@wide_option
@json_option
@calls_center
def command(
    reach: CenterAddress,
    names: tuple[str, ...],
    run: str,
    since: float | None,
    until: float | None,
    step: int,
    as_json: bool,
) -> None:
    """Show figures over time as text. Without NAMES, list the series."""
    from skep.wire.api.monitoring.series import WhichSeries

    if not names:
        known = ask(reach, lambda api: api.series.list())
        show_json(known) if as_json else show(names_table(known))
        return
    which = WhichSeries(",".join(names), run, since, until, step)
    chart = ask(reach, lambda api: api.series.show(which))
    show_json(chart) if as_json else show(chart_text(chart))


def names_table(known: KnownSeries) -> str:
    """As text."""
    rows = [
        (one.name, one.kind, one.label or "-", "yes" if one.of_runs else "no", one.text)
        for one in known.items
    ]
    return table(("SERIES", "KIND", "LABEL", "OF RUNS", "WHAT"), rows, spare=("KIND",))


def chart_text(chart: Chart) -> str:
    """A line of bars for each line of the chart."""
    rows = [
        (f"{one.name} {one.label}".strip(), spark(one.points), *_limits(one.points), one.unit)
        for one in chart.lines
    ]
    span = f"{age(chart.until - chart.since)} in steps of {age(chart.step)}"
    return f"{span}\n" + table(("SERIES", "CHART", "LAST", "MAX", "UNIT"), rows, spare=("UNIT",))


def spark(points: Sequence[float | None], width: int = WIDTH) -> str:
    """Bars from 0 to the maximum; a space where there are no figures."""
    size = max(-(-len(points) // width), 1)
    parts = [_mean(points[start : start + size]) for start in range(0, len(points), size)]
    top = max((part for part in parts if part is not None), default=0.0)
    return "".join(" " if part is None else _bar(part, top) for part in parts)


def _bar(value: float, top: float) -> str:
    return BARS[min(int(value / top * len(BARS)), len(BARS) - 1)] if top > 0 else BARS[0]


def _mean(points: Sequence[float | None]) -> float | None:
    there = [point for point in points if point is not None]
    return sum(there) / len(there) if there else None


def _limits(points: Sequence[float | None]) -> tuple[str, str]:
    there = [point for point in points if point is not None]
    return (f"{there[-1]:.4g}", f"{max(there):.4g}") if there else ("-", "-")
