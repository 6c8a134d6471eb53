"""`skep runs`: lists runs, shows a run, and sends commands to it.

It only calls the center; `command_outcome` describes the result of a command.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, NamedTuple

import click

from skep.cli.commands.results.deliveries import pending_in_words
from skep.cli.commands.results.run_view import in_words
from skep.cli.commands.results.why import waits_for
from skep.cli.terminal import command_outcome
from skep.cli.terminal.center_calls import ask, connected
from skep.cli.terminal.center_options import calls_center
from skep.cli.terminal.command_outcome import wait_option
from skep.cli.terminal.filters import FilterCommand, ListQuery, filter_options, no_match, show_page
from skep.cli.terminal.line_wrapping import wide_option
from skep.cli.terminal.options import json_option
from skep.cli.terminal.output import age, show, show_json, table
from skep.cli.terminal.short_ids import Id
from skep.embed.center_address import CenterAddress
from skep.runtime.clock import SystemClock

if TYPE_CHECKING:
    from skep.wire.api.runs import Runs, RunVerb, RunView, Steered
    from skep.wire.client import CenterClient
    from skep.wire.client.answers_as_sent import Extended
    from skep.wire.client.api import CenterApi

HEAD = ("RUN", "STATE", "AGE", "ACCEPTED", "OPEN", "DONE", "DEAD", "WAITS FOR")


@click.group("runs", invoke_without_command=True)
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=20, help="Maximum number, newest first."
)
@wide_option
@json_option
@calls_center
@click.pass_context
def command(context: click.Context, reach: CenterAddress, limit: int, as_json: bool) -> None:
    """List runs; show, pause, continue, restart, finish, cancel or revive one."""
    context.obj = reach
    if context.invoked_subcommand is None:
        views = asyncio.run(_read(reach, limit))
        show_json({"items": [one.plain() for one in views]}) if as_json else show(runs_table(views))


class ShownRun(NamedTuple):
    """A run with its ledger, and what it waits for."""

    view: RunView
    waits_for: str = ""

    def plain(self) -> Extended:
        """As plain data, for JSON."""
        from skep.wire.client.answers_as_sent import Extended

        return Extended(self.view, {"waits_for": self.waits_for})


async def _read(reach: CenterAddress, limit: int) -> list[ShownRun]:
    async with connected(reach) as client:
        return await read_runs(client, limit)


async def read_runs(client: CenterClient, limit: int) -> list[ShownRun]:
    """Runs with their ledgers and what they wait for, newest first."""
    from skep.wire.api.runs import RunPage

    listed = await client.api.runs.list(RunPage(limit))
    return list(await asyncio.gather(*(_shown(client, run.id) for run in listed.items)))


async def _shown(client: CenterClient, run: str) -> ShownRun:
    view = await client.api.runs.show(run)
    waits = await waits_for(client, view.run)
    return ShownRun(view, waits or _undelivered(view))


def _undelivered(view: RunView) -> str:
    """The items that the sinks of an ended run still lack, as text."""
    ended = view.run.state in {"finished", "cancelled"}
    return pending_in_words(view.deliveries) if ended else ""


def runs_table(runs: list[ShownRun]) -> str:
    """As text."""
    if not runs:
        return "no runs yet; `skep submit RUN FILE --new` opens one"
    now = SystemClock().now()
    return table(HEAD, [_row(one, now) for one in runs], spare=("ACCEPTED", "AGE"))


def _row(shown: ShownRun, now: float) -> tuple[object, ...]:
    run, ledger = shown.view.run, shown.view.ledger
    since = age(now - run.created_at)
    counts = (ledger.accepted, ledger.open, ledger.done, ledger.dead)
    return Id(run.id), run.state, since, *counts, shown.waits_for


@command.command("ls", cls=FilterCommand)
@filter_options("runs", 20)
@wide_option
@json_option
@calls_center
def ls(reach: CenterAddress, query: ListQuery, as_json: bool) -> None:
    """List runs that match a filter, newest first, such as `state:failed since:2h`."""
    views, listed = asyncio.run(_found(reach, query))
    if as_json:
        show_json({"items": [one.plain() for one in views], **_how(listed)})
        return
    missing = no_match(query, listed, runs_table([]))
    show_page(runs_table(views) if views else missing, listed, len(views))


def _how(listed: Runs) -> dict[str, object]:
    names = ("next_page", "count", "exact", "scanned")
    return {name: getattr(listed, name) for name in names}


async def _found(reach: CenterAddress, query: ListQuery) -> tuple[list[ShownRun], Runs]:
    from skep.wire.api.runs import RunPage

    async with connected(reach) as client:
        listed = await replace(query, paged=True).find(client.api, client.api.runs.list, RunPage)
        shown = await asyncio.gather(*(_shown(client, run.id) for run in listed.items))
        return list(shown), listed


@command.command("show")
@click.argument("run")
@wide_option
@json_option
@calls_center
def show_run(reach: CenterAddress, run: str, as_json: bool) -> None:
    """Show the counts, rate, agents and bytes of a run, and why it ended."""
    shown = asyncio.run(_one(reach, run))
    if as_json:
        show_json(shown.plain())
    else:
        show(in_words(shown.view, SystemClock().now(), shown.waits_for))


async def _one(reach: CenterAddress, run: str) -> ShownRun:
    async with connected(reach) as client:
        return await _shown(client, run)


def _verb(name: RunVerb | Literal["restart"], text: str) -> None:
    @command.command(name, help=text, short_help=text)
    @click.argument("run")
    @wait_option
    @json_option
    @calls_center
    def act(reach: CenterAddress, run: str, wait: float, as_json: bool) -> int:
        answer = ask(reach, lambda api: _changed(api, run, name, wait))
        if as_json:
            show_json(answer)
        else:
            show(f"{run} is {answer.run.state}")
            show(command_outcome.in_words(answer.reached, wait))
        return command_outcome.exit_of(answer.reached, wait)


async def _changed(
    api: CenterApi, run: str, verb: RunVerb | Literal["restart"], wait: float
) -> Steered:
    from skep.wire.api.runs import Waiting

    if verb == "restart":
        return await api.runs.restart(run, Waiting(wait))
    return await api.runs.change(run, verb, Waiting(wait))


_verb("pause", "Pause a run: no more requests are leased; active downloads may finish.")
_verb("continue", "Continue a paused, failed or finished run.")
_verb("restart", "Restart the spider process of a run; the run continues.")
_verb("finish", "Finish a run successfully; open requests are cancelled.")
_verb("cancel", "Cancel a run and its open requests; agents stop their downloads for it.")


@command.command("revive")
@click.argument("run")
@json_option
@calls_center
def revive(reach: CenterAddress, run: str, as_json: bool) -> None:
    """Retry the dead requests of a run."""
    answer = ask(reach, lambda api: api.runs.revive(run))
    show_json(answer) if as_json else show(
        f"{answer.requests} dead requests of {run} will be retried"
    )
