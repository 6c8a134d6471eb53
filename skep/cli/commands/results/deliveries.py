"""`skep data deliveries|retry|give-up|rejected|resend`: items on their way into sinks.

It asks and tells; the centers deliver.
"""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import quote

import click

from skep.cli.terminal.center_options import calls_center, run_path
from skep.cli.terminal.line_wrapping import wide_option
from skep.cli.terminal.options import json_option
from skep.cli.terminal.output import age, show, show_json, table
from skep.cli.terminal.short_ids import Id
from skep.embed.center_address import CenterAddress
from skep.runtime.clock import SystemClock

HEAD = ("RUN", "SINK", "STATE", "DELIVERED", "PENDING", "REJECTED", "PLACE", "LAST ERROR")
sink_option = click.option("--sink", default="", help="Key of one sink; else every sink.")


@click.command("deliveries")
@click.argument("run", required=False)
@wide_option
@json_option
@calls_center
def deliveries(reach: CenterAddress, run: str | None, as_json: bool) -> None:
    """Show how far the sinks of a run are; without RUN, all deliveries that are pending."""
    path = run_path(run, "deliveries") if run else "/api/v1/deliveries?limit=1000"
    _show(_call(reach, "GET", path), as_json)


@click.command("retry")
@click.argument("run")
@sink_option
@json_option
@calls_center
def retry(reach: CenterAddress, run: str, sink: str, as_json: bool) -> None:
    """Deliver the items of a run now, also where the delivery was given up."""
    path = run_path(run, f"deliveries/retry?sink={quote(sink)}")
    _show(_call(reach, "POST", path), as_json)


@click.command("give-up")
@click.argument("run")
@sink_option
@json_option
@calls_center
def give_up(reach: CenterAddress, run: str, sink: str, as_json: bool) -> None:
    """Stop delivering the items of a run. The items stay in the run."""
    path = run_path(run, f"deliveries/give-up?sink={quote(sink)}")
    _show(_call(reach, "POST", path), as_json)


@click.command("rejected")
@click.argument("run")
@click.option("--after", type=click.IntRange(0), default=0, help="Only higher numbers.")
@click.option("--limit", type=click.IntRange(1, 1000), default=100, help="How many.")
@wide_option
@json_option
@calls_center
def rejected(reach: CenterAddress, run: str, after: int, limit: int, as_json: bool) -> None:
    """List items that sinks refused; `skep data resend RUN` sends them again."""
    answer = _call(reach, "GET", run_path(run, f"rejected?after={after}&limit={limit}"))
    show_json(answer) if as_json else show(_rejected_table(answer))


@click.command("resend")
@click.argument("run")
@click.argument("numbers", nargs=-1, type=click.IntRange(1))
@sink_option
@json_option
@calls_center
def resend(
    reach: CenterAddress, run: str, numbers: tuple[int, ...], sink: str, as_json: bool
) -> None:
    """Send refused items again: those NUMBERS of `skep data rejected RUN`, or all."""
    body = {"sink": sink, "numbers": list(numbers)}
    answer = _call(reach, "POST", run_path(run, "rejected/retry"), body)
    show_json(answer) if as_json else show(f"{answer['items']} refused items are sent again")


def pending_in_words(lines: list[dict[str, Any]]) -> str:
    """What the sinks of one run do not have yet; "" when they have everything."""
    open_ = [line for line in lines if line["state"] != "done" and line["pending"]]
    return "; ".join(_pending(line) for line in open_)


def deliveries_table(lines: list[dict[str, Any]], now: float) -> str:
    """For people."""
    return table(HEAD, [_row(line, now) for line in lines])


def _pending(line: dict[str, Any]) -> str:
    state = ", given up" if line["state"] == "given_up" else ""
    error = f": {line['error']}" if line["error"] else ""
    return f"{line['pending']:,} items not delivered to {line['place']}{state}{error}"


def _row(line: dict[str, Any], now: float) -> tuple[object, ...]:
    since = f" ({age(now - line['error_at'])} ago)" if line["error"] else ""
    counts = (line["delivered"], line["pending"], line["rejected"])
    error = f"{line['error']}{since}"
    run = Id(line["run"])
    return run, line["sink"], line["state"], *counts, line["place"], error


def _rejected_table(answer: dict[str, Any]) -> str:
    now = SystemClock().now()
    rows = [
        (
            line["number"],
            line["item"],
            line["sink"],
            line["tries"],
            age(now - line["at"]),
            "resending" if line["resending"] else "",
            line["reason"],
        )
        for line in answer["items"]
    ]
    head = ("NUMBER", "ITEM", "SINK", "TRIES", "AGE", "STATE", "REASON")
    more = f"\nmore: --after {answer['next']}" if answer["next"] else ""
    return table(head, rows) + more


def _show(answer: dict[str, Any], as_json: bool) -> None:
    if as_json:
        show_json(answer)
    else:
        show(deliveries_table(answer["items"], SystemClock().now()))


def _call(reach: CenterAddress, method: str, path: str, body: Any = None) -> dict[str, Any]:
    async def call() -> dict[str, Any]:
        async with reach.client() as client:
            answer: dict[str, Any] = await client.call(method, path, body, dict)
            return answer

    return asyncio.run(call())
