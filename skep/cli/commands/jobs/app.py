"""`skep app`: lists instances of application jobs, prints their logs, restarts and stops them.

It only calls the center; agents run the instances. Control characters in logs are escaped.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Literal

import click

from skep.cli.terminal.center_calls import connected
from skep.cli.terminal.center_options import calls_center, center_group
from skep.cli.terminal.line_wrapping import wide_option
from skep.cli.terminal.options import json_option
from skep.cli.terminal.output import age, show, show_json, table
from skep.cli.terminal.short_ids import Id
from skep.embed.center_address import CenterAddress
from skep.runtime.clock import SystemClock

if TYPE_CHECKING:
    from skep.cli.commands.jobs.app_calls import AppRun
    from skep.wire.api.apps import InstanceLine

HEAD = ("NO", "AGENT", "STATE", "STARTS", "EXIT", "SINCE", "REASON")
_instance = click.option(
    "--instance", "no", type=click.IntRange(0, 2**31 - 1), help="Number of one instance."
)


@center_group("app")
def command() -> None:
    """List application instances; read their logs, restart or stop them."""


@command.command("ls")
@click.argument("run_or_job", required=False, default="")
@wide_option
@json_option
@calls_center
def ls(reach: CenterAddress, run_or_job: str, as_json: bool) -> None:
    """Show the instances of a run or of the newest run of a job; without a name, of every job
    with an application.
    """
    from skep.cli.commands.jobs.app_calls import every_app, found_instances

    asked = found_instances(reach, run_or_job) if run_or_job else every_app(reach)
    found = asyncio.run(asked)
    if as_json:
        show_json({"runs": [one.plain() for one in found]})
    elif not found:
        show("no application job has a run")
    else:
        show("\n\n".join(sheet(one, SystemClock().now()) for one in found))


def sheet(found: AppRun, now: float) -> str:
    """One run as text."""
    from skep.cli.commands.jobs.app_calls import NOT_THERE

    reason = f": {found.reason}" if found.reason else ""
    head = f"run {found.run} of job {found.job} is {found.state}{reason}"
    rows = [_row(line, now) for line in found.items]
    if not rows:
        return head if found.state == NOT_THERE else f"{head}\nit has no instances yet"
    return f"{head}\n{table(HEAD, rows, spare=('STARTS',))}"


def _row(line: InstanceLine, now: float) -> tuple[object, ...]:
    one = line.instance
    met = one.state == line.wanted or one.state in {"done", "failed", "stopped"}
    state = one.state if met else f"{one.state} -> {line.wanted}"
    code = "-" if one.exit_code is None else one.exit_code
    since = f"{age(now - one.changed_at)} ago"
    return one.no, Id(one.agent or "-"), state, one.starts, code, since, one.reason or "-"


@command.command("logs")
@click.argument("run_or_job")
@_instance
@click.option(
    "-f", "--follow", is_flag=True, help="Follow the logs until the instances have ended."
)
@click.option(
    "--tail", type=click.IntRange(0), help="Print only the last N lines of each instance."
)
@calls_center
def logs(
    reach: CenterAddress, run_or_job: str, no: int | None, follow: bool, tail: int | None
) -> None:
    """Print the logs of the instances of a run or of the newest run of a job.

    With several instances, every line begins with the number of its instance. Control
    characters are printed as text.
    """
    from skep.cli.commands.jobs.app_logs import print_logs

    asyncio.run(print_logs(reach, run_or_job, no, follow=follow, tail=tail))


@command.command("restart")
@click.argument("run_or_job")
@_instance
@json_option
@calls_center
def restart(reach: CenterAddress, run_or_job: str, no: int | None, as_json: bool) -> None:
    """Restart the instances of a run, or one of them; the run continues."""
    _act(reach, run_or_job, no, "restart", as_json)


@command.command("stop")
@click.argument("run_or_job")
@_instance
@json_option
@calls_center
def stop(reach: CenterAddress, run_or_job: str, no: int | None, as_json: bool) -> None:
    """Stop the instances of a run, or one of them, until it is restarted.

    The run ends when all of its instances have ended. `skep runs cancel` stops a run at once.
    """
    _act(reach, run_or_job, no, "stop", as_json)


Verb = Literal["restart", "stop"]


def _act(reach: CenterAddress, run_or_job: str, no: int | None, verb: Verb, as_json: bool) -> None:
    lines = asyncio.run(_acted(reach, run_or_job, no, verb))
    if as_json:
        show_json({"items": lines})
        return
    for line in lines:
        one = line.instance
        where = f" on agent {one.agent}" if one.agent else ""
        show(f"instance {one.no} of run {one.run}: desired state is {line.wanted}{where}")


async def _acted(
    reach: CenterAddress, run_or_job: str, no: int | None, verb: Verb
) -> list[InstanceLine]:
    from skep.cli.commands.jobs.app_calls import instances_of

    async with connected(reach) as client:
        found = await instances_of(client, run_or_job, no)
        act = client.api.apps.restart if verb == "restart" else client.api.apps.stop
        return [await act(found.run, line.instance.no) for line in found.items]
