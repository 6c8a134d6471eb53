"""`skep bulk`: one act on everything that a filter matches.

It shows what matches before it starts anything. The center processes the operation, whether or not
this command waits for it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import click

from skep.cli.commands.operate.operation_start import Asked, download, operate
from skep.cli.commands.operate.operation_view import exit_of, in_words, plan_in_words
from skep.cli.terminal.center_calls import ask, connected
from skep.cli.terminal.center_options import calls_center
from skep.cli.terminal.line_wrapping import wide_option
from skep.cli.terminal.options import json_option
from skep.cli.terminal.output import show, show_json, table
from skep.embed.center_address import CenterAddress
from skep.model.operations import OperationState

if TYPE_CHECKING:
    from skep.wire.api.operations import Acts

HEAD = ("ACT", "RESOURCE", "CANNOT BE UNDONE", "WHAT IT DOES")


@click.command("bulk")
@click.argument("act", required=False, default="")
@click.argument("resource", required=False, default="")
@click.argument("filter", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Every object; instead of a filter.")
@click.option("--dry-run", is_flag=True, help="Show what would change; change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--wait/--no-wait", default=True, help="Wait until the operation has ended.")
@click.option(
    "--rate", type=click.IntRange(0, 1_000_000), default=0, help="Maximum objects per second."
)
@click.option(
    "--with", "given", multiple=True, metavar="NAME=VALUE", help="An argument of the act."
)
@click.option(
    "--label", "labels", multiple=True, metavar="NAME[=VALUE]", help="For `label`: add a label."
)
@click.option(
    "--unlabel", "without", multiple=True, metavar="NAME", help="For `label`: remove a label."
)
@click.option("-o", "--output", default="", help="For `export`: save the file; - = to stdout.")
@wide_option
@json_option
@calls_center
def command(
    reach: CenterAddress,
    act: str,
    resource: str,
    filter: tuple[str, ...],  # noqa: A002 - the name in the help
    everything: bool,
    dry_run: bool,
    yes: bool,
    wait: bool,
    rate: int,
    given: tuple[str, ...],
    labels: tuple[str, ...],
    without: tuple[str, ...],
    output: str,
    as_json: bool,
) -> int:
    """Retry, cancel, delete, pause, label or export everything that a filter matches.

    Without arguments it lists the acts. RESOURCE is requests, failures, runs, jobs or agents; the
    filter is that of lists: `skep bulk retry failures job:quotes error:timeout`. Put a filter
    that begins with a dash after `--`.
    """
    if not act:
        acts = ask(reach, lambda api: api.operations.acts())
        show_json(acts) if as_json else show(_acts_table(acts))
        return 0
    if not resource or (not filter and not everything):
        raise click.UsageError("give ACT, RESOURCE and a FILTER, or --all instead of the filter")
    if output and not wait:
        raise click.UsageError("--output needs --wait; later, `skep op download` does it")
    arguments = _arguments(given) | _labels(labels, without)
    text = " ".join(filter)
    asked = Asked(act, resource, text, everything, dry_run, yes, wait, rate, arguments)
    return asyncio.run(_run(reach, asked, output, as_json))


def _acts_table(acts: Acts) -> str:
    rows = [(one.name, one.resource, "yes" if one.destroys else "", one.help) for one in acts.items]
    return table(HEAD, rows)


def _labels(labels: tuple[str, ...], without: tuple[str, ...]) -> dict[str, Any]:
    pairs = (one.partition("=") for one in labels)
    found: dict[str, Any] = {"add": {name: value for name, _, value in pairs}} if labels else {}
    return found | {"remove": list(without)} if without else found


def _arguments(given: tuple[str, ...]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for one in given:
        name, sign, value = one.partition("=")
        if not sign or not name:
            raise click.BadParameter(f"{one!r} is not NAME=VALUE", param_hint="--with")
        found[name] = {"true": True, "false": False}.get(value, value)
    return found


async def _run(reach: CenterAddress, asked: Asked, output: str, as_json: bool) -> int:
    async with connected(reach) as client:
        plan, ended = await operate(client, asked)
        if ended is None:
            show_json(plan) if as_json else show(plan_in_words(asked.act, asked.resource, plan))
            return 0
        if output and ended.state == OperationState.DONE:
            await download(client, ended.id, output)
        if output != "-":
            show_json(ended) if as_json else show(in_words(ended))
        return exit_of(ended)
