"""`skep run`: runs a spider in this process, with a local or remote center.

The code of the spider runs only here. The center stores the results, so this process can be
killed at any moment and started again with --resume.
"""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from skep.cli.commands.crawl.spider_options import arguments_option, make_spider, setting_pairs
from skep.cli.terminal.center_options import calls_center
from skep.cli.terminal.options import json_option
from skep.cli.terminal.program_name import program
from skep.cli.terminal.wait_outcome import AllowDead, allow_dead_option
from skep.embed.center_address import CenterAddress

if TYPE_CHECKING:
    from skep.spiders.authoring.spider import Spider


@click.command("run")
@click.argument("spider")
@arguments_option
@click.option(
    "-s",
    "chosen",
    multiple=True,
    metavar="NAME=VALUE",
    help="A setting of the run or of the spider, such as retries=2; repeatable.",
)
@click.option(
    "-o",
    "outputs",
    multiple=True,
    metavar="URL",
    help="Output for items: items.jsonl, items.csv or the URL of a sink; repeatable.",
)
@click.option(
    "-O",
    "overwritten",
    multiple=True,
    metavar="FILE",
    help="Like -o for a file, but overwrite it.",
)
@click.option("--run", "run_name", metavar="NAME", help="Name of the run. Default: a new name.")
@click.option(
    "--resume",
    is_flag=False,
    flag_value="",
    metavar="[NAME]",
    help="Continue this run, or the newest unfinished run of the spider.",
)
@click.option("--pages", type=click.IntRange(1), help="Stop successfully after N pages.")
@click.option("--items", type=click.IntRange(1), help="Stop successfully after N items.")
@allow_dead_option
@click.option("-v", "--verbose", is_flag=True, help="Log more details.")
@json_option
@calls_center
def command(
    reach: CenterAddress,
    spider: str,
    arguments: tuple[str, ...],
    chosen: tuple[str, ...],
    outputs: tuple[str, ...],
    overwritten: tuple[str, ...],
    run_name: str | None,
    resume: str | None,
    pages: int | None,
    items: int | None,
    allow_dead: AllowDead,
    verbose: bool,
    as_json: bool,
) -> int:
    """Run a spider.

    SPIDER is file.py, file.py:Class or package.module:Class. Without --center, the command
    uses the center of the data folder, or starts a center and an agent there as a child
    process. The center stores the items; -o also writes them to files. -o appends to an
    existing file and prints a note; -O overwrites it.

    Ctrl-C pauses the run; --resume continues it, also after a crash. A second Ctrl-C exits
    immediately. The exit code is 0 if the run is finished and every request is done, 7 if
    some are dead, 1 if none is done or the run ended for another reason, which is printed,
    6 if no center answered, and 130 after Ctrl-C.
    """
    import uvloop

    from skep.cli.commands.crawl.spider_start import Restart, SpiderRunPlan, center_begun, drive
    from skep.spiders.session.plan import SessionPlan

    if run_name and resume is not None:
        raise click.UsageError("--run cannot be used with --resume; write --resume NAME")
    if overwritten and resume is not None:
        raise click.UsageError(
            "-O cannot be used with --resume, because it deletes the output of the run; use -o"
        )
    settings = setting_pairs(chosen)
    settings |= _limits(pages, items)
    before, after = _words(spider, sys.argv[1:])
    folder = Path(reach.settings().data)
    with center_begun(reach, folder) as begun:
        made = make_spider(spider, arguments, settings)
    _limit_memory(made)
    session = SessionPlan(
        spider=made,
        folder=folder,
        outputs=(*outputs, *overwritten),
        overwritten=overwritten,
        run=run_name,
        resume=resume,
    )
    plan = SpiderRunPlan(
        reach=reach,
        session=session,
        again=f"{program()} {shlex.join([*before, 'run', *after])}",
        as_json=as_json,
        verbose=verbose,
        allow_dead=allow_dead,
        begun=begun,
    )
    try:
        return uvloop.run(drive(plan))
    except Restart as restart:
        _start_again(before, after, str(restart))
        raise  # never reached: `_start_again` replaces the process


def _limit_memory(spider: Spider) -> None:
    from skep.spiders.driving.memory_limit import limit_memory

    limit_memory(spider.options.memory_limit)


def _limits(pages: int | None, items: int | None) -> dict[str, Any]:
    given = {"page_limit": pages, "item_limit": items}
    return {name: value for name, value in given.items() if value is not None}


def _words(spider: str, typed: list[str]) -> tuple[list[str], list[str]]:
    """The words before `run`, and those after it without the options that name the run."""
    if "run" not in typed:
        return [], [spider]
    place = typed.index("run")
    kept: list[str] = []
    words = iter(typed[place + 1 :])
    for word in words:
        if word == "--run":
            next(words, None)
        elif word == "--resume":
            # The name is optional; names do not begin with a dash.
            following = next(words, "-")
            kept += [following] if following.startswith("-") and following != "-" else []
        elif not word.startswith(("--run=", "--resume=")):
            kept.append(word)
    return typed[:place], kept


def _start_again(before: list[str], after: list[str], run: str) -> None:
    """Run the same command again in this process, which reloads the code of the spider."""
    command_line = [sys.executable, "-m", "skep", *before, "run", *after, "--resume", run]
    os.execv(sys.executable, command_line)  # noqa: S606 - no shell
