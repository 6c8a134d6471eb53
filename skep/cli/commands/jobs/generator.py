"""`skep generator`: tests the generators of jobs and shows what they did in runs.

`test` runs the code here, in the same sandbox as a center; `ls` only reads.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import click

from skep.cli.terminal.center_calls import connected
from skep.cli.terminal.center_options import calls_center, center_group
from skep.cli.terminal.line_wrapping import wide_option
from skep.cli.terminal.options import json_option
from skep.cli.terminal.output import show, show_json, table
from skep.embed.center_address import CenterAddress
from skep.errors import NotFound, UnknownRun

if TYPE_CHECKING:
    from skep.wire.api.generators import GeneratorView, RunGenerators
    from skep.wire.client import CenterClient

HEAD = ("GENERATOR", "KIND", "STATE", "YIELDED", "TAKEN", "KNOWN", "BAD", "SECONDS", "STARTS")


@center_group("generator")
def command() -> None:
    """Test the generators of a job; show what they did in a run."""


@command.command("test")
@click.argument("source")
@click.argument("name", required=False, default="")
@click.option(
    "-n", "count", type=click.IntRange(1, 10_000), default=10, help="Number of URIs to show."
)
@click.option(
    "--seconds",
    type=click.FloatRange(0.1, 3600),
    default=30.0,
    help="Time limit of each generator.",
)
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(),
    help="Folder with the files of the generators.",
)
@json_option
@calls_center
def test(
    reach: CenterAddress,
    source: str,
    name: str,
    count: int,
    seconds: float,
    folder: Path,
    as_json: bool,
) -> int:
    """Run generators on this machine, in their sandbox, and show what they yield.

    SOURCE is a file with job documents, or the name of a job at the center; NAME is the name
    or number of one of its generators. Each generator is stopped when it has yielded enough.
    Nothing is stored, and only sitemaps are downloaded. The exit code is 1 if a generator
    fails.
    """
    from skep.cli.commands.jobs.generator_trials import GeneratorChoice, test_generators

    wanted = GeneratorChoice(source, name, count, seconds, folder)
    return asyncio.run(test_generators(reach, wanted, as_json=as_json))


@command.command("ls")
@click.argument("run")
@wide_option
@json_option
@calls_center
def ls(reach: CenterAddress, run: str, as_json: bool) -> None:
    """Show what the generators of a run did.

    For the name of a job, its newest run is shown.
    """
    answer = asyncio.run(_figures(reach, run))
    if as_json:
        show_json(answer)
    elif not answer.items:
        show("this run has no generators")
    else:
        show(table(HEAD, [_row(one) for one in answer.items], spare=("STARTS", "KIND")))
        for one in answer.items:
            if one.detail:
                show(f"{one.name}: {one.detail}")


def _row(one: GeneratorView) -> tuple[object, ...]:
    counts = (one.yielded, one.taken, one.known, one.bad)
    return one.name, one.kind, one.state, *counts, f"{one.seconds:.1f}", one.starts


async def _figures(reach: CenterAddress, run: str) -> RunGenerators:
    async with connected(reach) as client:
        try:
            return await client.api.generators.of_run(run)
        except UnknownRun:
            newest = await _newest_run(client, run)
        return await client.api.generators.of_run(newest)


async def _newest_run(client: CenterClient, job: str) -> str:
    view = await client.api.jobs.show(job)
    if not view.runs:
        raise NotFound(f"job {job} has no runs yet; `skep job run {job}` starts one")
    return view.runs[0].run
