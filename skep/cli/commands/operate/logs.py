"""`skep logs`: searches, follows and exports the log lines of all processes. It only reads."""

from __future__ import annotations

import asyncio

import click

from skep.cli.terminal.center_calls import ask
from skep.cli.terminal.center_options import calls_center
from skep.cli.terminal.filters import FilterCommand, filter_argument, text_of
from skep.cli.terminal.options import json_option
from skep.embed.center_address import CenterAddress

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}


@click.command("logs", cls=FilterCommand)
@filter_argument("logs", "terms")
@click.option("-f", "--follow", is_flag=True, help="Print new lines as they arrive.")
@click.option("-n", "--lines", type=click.IntRange(0), default=100, help="Number of newest lines.")
@click.option("--all", "every", is_flag=True, help="Print all lines that fit, newest first.")
@click.option("--pattern", default="", metavar="RE2", help="Lines that match this pattern.")
@click.option("--level", type=click.Choice(list(LEVELS)), help="This level and above.")
@click.option("--run", default="", help="Lines of this run.")
@click.option("--agent", default="", help="Lines of this agent.")
@click.option("--source", default="", help="Lines of centers, agents, spiders, ...: `spider`.")
@click.option("--since", default="", metavar="TIME", help="Lines since `2h` ago or `2026-11-18`.")
@click.option("--until", default="", metavar="TIME", help="Lines until then.")
@click.option("--context", type=click.IntRange(0, 200), default=0, help="Lines around each hit.")
@click.option("--budgets", is_flag=True, help="Show stored bytes, limits and dropped lines.")
@json_option
@calls_center
def command(
    reach: CenterAddress,
    terms: tuple[str, ...],
    follow: bool,
    lines: int,
    every: bool,
    pattern: str,
    level: str | None,
    run: str,
    agent: str,
    source: str,
    since: str,
    until: str,
    context: int,
    budgets: bool,
    as_json: bool,
) -> None:
    """Search, follow and export the log lines of all processes.

    FILTER has terms such as `level:error`, `job:quotes`, `-agent:attic` and free text; all of
    them must fit. Lines are printed oldest first. With --json, each line is a JSON object:
    `skep logs --all --json` exports everything that is stored.
    """
    from skep.cli.commands.operate.log_reader import LineSelection, LogReader, show_budgets
    from skep.model.filter.syntax import quoted_if_needed

    if budgets:
        show_budgets(reach, as_json=as_json)
        return
    if follow and (context or every):
        raise click.UsageError("--follow cannot be used with --context or --all")
    named = {"run": run, "agent": agent, "source": source, "since": since, "until": until}
    fields = [f"{name}:{quoted_if_needed(value)}" for name, value in named.items() if value]
    text = ask(reach, lambda api: text_of(api, [*terms, *fields], "logs"))
    wanted = LineSelection(text, pattern, LEVELS[level] if level else 0)
    reader = LogReader(reach, wanted, context, as_json=as_json)
    asyncio.run(reader.follow(lines) if follow else reader.search(None if every else lines))
