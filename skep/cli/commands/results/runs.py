"""`skep runs`: the list of runs, and what can be done to one.

It asks and tells; what becomes of a word to a run is said by `steering`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import click

from skep.cli.commands.results.deliveries import pending_in_words
from skep.cli.commands.results.run_view import OPEN_STATES, in_words
from skep.cli.commands.results.why import waits_for
from skep.cli.terminal import command_outcome
from skep.cli.terminal.center_options import calls_center, run_path
from skep.cli.terminal.command_outcome import wait_option
from skep.cli.terminal.line_wrapping import wide_option
from skep.cli.terminal.options import json_option
from skep.cli.terminal.output import age, show, show_json, table
from skep.cli.terminal.short_ids import Id
from skep.embed.center_address import CenterAddress
from skep.runtime.clock import SystemClock

if TYPE_CHECKING:
    from skep.wire.client import CenterClient

HEAD = ("RUN", "STATE", "AGE", "ACCEPTED", "OPEN", "DONE", "DEAD", "WAITS FOR")


@click.group("runs", invoke_without_command=True)
@click.option("--limit", type=click.IntRange(1, 1000), default=20, help="How many, newest first.")
@wide_option
@json_option
@calls_center
@click.pass_context
def command(context: click.Context, reach: CenterAddress, limit: int, as_json: bool) -> None:
    """List runs; show, pause, continue, restart, finish, cancel or revive one."""
    context.obj = reach
    if context.invoked_subcommand is None:
        views = asyncio.run(_read(reach, limit))
        show_json({"items": views}) if as_json else show(runs_table(views))


async def _read(reach: CenterAddress, limit: int) -> list[dict[str, Any]]:
    async with reach.client() as client:
        return await read_runs(client, limit)


async def read_runs(client: CenterClient, limit: int) -> list[dict[str, Any]]:
    """Runs with their ledgers and what they wait for, newest first."""
    listed = await client.call("GET", f"/api/v1/runs?limit={limit}", None, dict)
    return list(await asyncio.gather(*(_view(client, run["id"]) for run in listed["items"])))


async def _view(client: CenterClient, run: str) -> dict[str, Any]:
    """A run with its ledger, and what it waits for."""
    view: dict[str, Any] = await client.call("GET", run_path(run), None, dict)
    waits = await waits_for(client, view["run"])
    return {**view, "waits_for": waits or _undelivered(view)}


def _undelivered(view: dict[str, Any]) -> str:
    """Of a run that has ended: what its sinks do not have yet."""
    ended = view["run"]["state"] in {"finished", "cancelled"}
    return pending_in_words(view.get("deliveries", [])) if ended else ""


def runs_table(views: list[dict[str, Any]]) -> str:
    """For people."""
    if not views:
        return "no runs yet; `skep submit RUN FILE --new` opens one"
    now = SystemClock().now()
    return table(HEAD, [_row(view, now) for view in views], spare=("ACCEPTED", "AGE"))


def _row(view: dict[str, Any], now: float) -> tuple[object, ...]:
    run, ledger = view["run"], view["ledger"]
    left = sum(ledger[state] for state in OPEN_STATES)
    since = age(now - run["created_at"])
    counts = (ledger["accepted"], left, ledger["done"], ledger["dead"])
    return Id(run["id"]), run["state"], since, *counts, view.get("waits_for", "")


@command.command("show")
@click.argument("run")
@wide_option
@json_option
@calls_center
def show_run(reach: CenterAddress, run: str, as_json: bool) -> None:
    """Its figures: left, total, success, failed, rate, agents, bytes; and why it ended."""
    view = asyncio.run(_one(reach, run))
    show_json(view) if as_json else show(in_words(view, SystemClock().now()))


async def _one(reach: CenterAddress, run: str) -> dict[str, Any]:
    async with reach.client() as client:
        return await _view(client, run)


def _verb(name: str, text: str) -> None:
    @command.command(name, help=text, short_help=text)
    @click.argument("run")
    @wait_option
    @json_option
    @calls_center
    def act(reach: CenterAddress, run: str, wait: float, as_json: bool) -> int:
        answer = asyncio.run(_act(reach, run, f"{name}?wait={wait:g}", wait))
        if as_json:
            show_json(answer)
        else:
            show(f"{run} is {answer['run']['state']}")
            show(command_outcome.in_words(answer["reached"], wait))
        return command_outcome.exit_of(answer["reached"], wait)


async def _act(reach: CenterAddress, run: str, verb: str, wait: float = 0.0) -> dict[str, Any]:
    async with reach.client() as client:
        answer: dict[str, Any] = await client.call(
            "POST", run_path(run, verb), None, dict, seconds=wait + command_outcome.MARGIN
        )
        return answer


_verb("pause", "Hand out no more of its requests; downloads that run may end.")
_verb("continue", "Go on with a paused, failed or finished run.")
_verb("restart", "Start the process of its spider anew; the run goes on.")
_verb("finish", "End it well; what is still open is cancelled.")
_verb("cancel", "Cancel every request that has not ended; agents drop what they do for it.")


@command.command("revive")
@click.argument("run")
@json_option
@calls_center
def revive(reach: CenterAddress, run: str, as_json: bool) -> None:
    """Send its dead requests again."""
    answer = asyncio.run(_act(reach, run, "revive"))
    show_json(answer) if as_json else show(
        f"{answer['requests']} dead requests of {run} wait again"
    )
