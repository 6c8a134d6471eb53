"""`skep data`: exports the items and pages of a run to files.

It reads from the center and writes local files. It does not change the run or mark items as
read.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import click

from skep.cli.commands.results import deliveries
from skep.cli.terminal.center_calls import connected
from skep.cli.terminal.center_options import calls_center
from skep.cli.terminal.exit_codes import ExitCode
from skep.cli.terminal.output import say
from skep.embed.center_address import CenterAddress
from skep.runtime.clock import SystemClock

if TYPE_CHECKING:
    from skep.spiders.session.item_sinks import SinkProgress
    from skep.wire.client import CenterClient

STDOUT = "-"


@click.group("data")
def command() -> None:
    """Export the items and pages of a run."""


for part in (
    deliveries.deliveries,
    deliveries.retry,
    deliveries.give_up,
    deliveries.rejected,
    deliveries.resend,
):
    command.add_command(part)


@command.command("export")
@click.argument("run")
@click.option(
    "--format",
    "form",
    type=click.Choice(["jsonl", "csv"]),
    default="jsonl",
    help="Format of the items on stdout or in FILE.",
)
@click.option(
    "-o",
    "output",
    default=STDOUT,
    metavar="FILE",
    help="Output for items: a new file or the URL of a sink. Default: stdout.",
)
@click.option(
    "--warc",
    type=click.Path(path_type=Path, file_okay=False),
    help="Write the archived pages to RUN.warc.zst in this folder, instead of items.",
)
@calls_center
def export(reach: CenterAddress, run: str, form: str, output: str, warc: Path | None) -> int:
    """Write the items of a run, or its archived pages.

    Items are in the order in which the run stored them. With --warc and -o, both are
    written. Existing files are never changed; a sink receives only the items it lacks.
    """
    return asyncio.run(_export(reach, run, form, output, warc))


async def _export(reach: CenterAddress, run: str, form: str, output: str, warc: Path | None) -> int:
    problem = ""
    async with connected(reach) as client:
        await client.api.runs.show(run)  # raises UnknownRun before anything is written
        if warc is None or output != STDOUT:
            output_sink = await _items(client, Path(reach.settings().data), run, form, output)
            problem = output_sink.problem
            refused = f", {output_sink.refused} refused" if output_sink.refused else ""
            say(f"{output_sink.items} items of {run}{refused}")
        if warc is not None:
            pages, path = await write_warc(client, run, warc)
            say(f"{pages} pages of {run} written to {path}")
    if problem:
        say(f"error: {problem}")
    return ExitCode.FAILED if problem else ExitCode.OK


async def _items(
    client: CenterClient, folder: Path, run: str, form: str, output: str
) -> SinkProgress:
    from skep.spiders.session.item_sinks import SinkWriters

    rng = Random()  # noqa: S311 - jitter
    output_sinks = SinkWriters(client.api, run, folder, SystemClock(), rng)
    async with _place(client, run, form, output) as (url, options):
        await output_sinks.open([url], options)
        await output_sinks.finish()
    return output_sinks.output_sinks[0]


@asynccontextmanager
async def _place(
    client: CenterClient, run: str, form: str, output: str
) -> AsyncIterator[tuple[str, dict[str, str]]]:
    """(URL of the sink, its options). A plain file is completed first, then moved to its place."""
    if ":" in output:
        yield output, {}
        return
    if await asyncio.to_thread(Path(output).exists):
        raise click.UsageError(f"-o: {output} exists; choose another file")
    options = {"fields": ",".join(await fields_of(client, run))} if form == "csv" else {}
    near = Path(output).parent if output != STDOUT else None
    with TemporaryDirectory(prefix=".skep-", dir=near) as folder:
        file = Path(folder) / f"items.{form}"
        yield f"{form}:{file}", options
        if output != STDOUT:
            file.replace(output)
        else:
            _copy_to_stdout(file)


def _copy_to_stdout(file: Path) -> None:
    import shutil
    import sys

    with file.open("rb") as source:
        shutil.copyfileobj(source, sys.stdout.buffer)
    sys.stdout.buffer.flush()


async def fields_of(client: CenterClient, run: str) -> list[str]:
    """All fields of all items, in the order of first appearance; a CSV header needs them."""
    from skep.wire.api.results import ItemPage

    results = client.api.results
    fields: dict[str, None] = {}
    after = 0
    while (page := await results.items(run, ItemPage(after))).items:
        for item in page.items:
            fields.update(dict.fromkeys(item.data))
        after = page.next
    return list(fields)


async def write_warc(client: CenterClient, run: str, folder: Path) -> tuple[int, Path]:
    """Write the newest records of every ended request to one WARC file."""
    from skep import __version__
    from skep.archive.frames import FrameMaker
    from skep.cli.commands.results.archived_pages import archived_blocks

    await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
    path = folder / f"{run}.warc.zst"
    if path.exists():
        raise click.UsageError(f"--warc: {path} exists; choose another folder")
    part = path.with_name(f".{path.name}.part")
    maker = FrameMaker(SystemClock(), Random())  # noqa: S311 - record ids, no secrets
    pages = 0
    with part.open("wb") as file:
        file.write(maker.warcinfo_frame(path.name, f"skep {__version__}"))
        async for block in archived_blocks(client, run, unread=True):
            for page in block.pages:
                file.write(page.frames)
                pages += bool(page.frames)
    part.replace(path)
    return pages, path
