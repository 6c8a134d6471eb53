"""`skep demo`: a center, an agent and a bundled site on this machine, and a real crawl.

Everything is in a separate folder and listens on loopback. The folder is removed at the end,
unless you name one with --data.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import click

from skep.cli.terminal.options import json_option, stacked
from skep.cli.terminal.output import say, show, show_json
from skep.cli.terminal.wait_outcome import exit_of

if TYPE_CHECKING:
    from skep.embed.demo_center import DemoCenter
    from skep.model.ledger import Ledger

#: Requests per block: results are counted by block, so small blocks move the bar smoothly.
BLOCKS = 40

stage_options = stacked(
    click.option(
        "--data",
        type=click.Path(path_type=Path, file_okay=False),
        help="Folder to keep the data in. Default: a temporary folder, removed at the end.",
    ),
    json_option,
)


@click.group("demo", invoke_without_command=True)
@click.option("--pages", type=click.IntRange(1, 10**6), default=1000, help="Pages to crawl.")
@click.option(
    "--latency", type=click.FloatRange(0), default=0.05, help="Seconds the site takes per page."
)
@click.option("--keep", is_flag=True, help="Keep running until Ctrl-C.")
@stage_options
@click.pass_context
def command(
    context: click.Context,
    pages: int,
    latency: float,
    keep: bool,
    data: Path | None,
    as_json: bool,
) -> int | None:
    """Try Skep: crawl a bundled site of 1,000 pages.

    The demo does not need a network. It prints the ledger and exits when the crawl is done.
    """
    if context.invoked_subcommand is not None:
        return None
    import uvloop

    start_quiet_logging()
    return uvloop.run(_demo(pages, latency, keep, data, as_json))


@command.command("break")
@click.option("--pages", type=click.IntRange(100, 10**6), default=1000, help="Pages to crawl.")
@click.option(
    "--latency", type=click.FloatRange(0), default=0.1, help="Seconds the site takes per page."
)
@stage_options
def break_command(pages: int, latency: float, data: Path | None, as_json: bool) -> int:
    """Kill an agent with -9 during a crawl and check that nothing is lost.

    Two agents share the work. The center detects the missing heartbeats within 11 seconds and
    gives the blocks to the other agent. The site counts lost and repeated requests.
    """
    import uvloop

    from skep.cli.commands.crawl.demo_break import break_an_agent

    start_quiet_logging()
    return uvloop.run(break_an_agent(pages, latency, data, as_json))


def start_quiet_logging() -> None:
    """Log warnings only, because the demos print their own progress."""
    from skep.runtime.logging import start_logging

    start_logging(sys.stderr, logging.WARNING, sentences=True)


async def _demo(pages: int, latency: float, keep: bool, data: Path | None, as_json: bool) -> int:
    from skep.cli.terminal.follow_run import follow
    from skep.cli.terminal.progress import Progress
    from skep.embed.demo_center import DEMO_RUN, LONGEST, DemoCenter
    from skep.embed.serve import until_signalled
    from skep.model.run import AskedSettings
    from skep.runtime.clock import SystemClock

    clock, rng = SystemClock(), Random()  # noqa: S311 - jitter and names, no secrets
    async with DemoCenter(data, clock, rng) as stage:
        site = await stage.start_site(pages, latency)
        await stage.start_agent()
        say(f"center {stage.center.url} · site {site} · {pages} pages")
        began = clock.monotonic()
        urls = [f"{site}/page/{number}" for number in range(pages)]
        settings = AskedSettings(block_size=min(max(pages // BLOCKS, 5), 100))
        await stage.submit(DEMO_RUN, urls, settings)
        ledger = await follow(stage.client, DEMO_RUN, Progress(sys.stderr, clock), clock, LONGEST)
        _report(stage, ledger, clock.monotonic() - began, as_json)
        if keep:
            say(f"open {await stage.center.login_link()}")
            say(f"token in {stage.center.folder / 'admin.token'}; press Ctrl-C to stop")
            with until_signalled() as stopping:
                await stopping.wait()
    return exit_of(ledger)


def _report(stage: DemoCenter, ledger: Ledger, seconds: float, as_json: bool) -> None:
    if as_json:
        figures: dict[str, Any] = {"seconds": round(seconds, 3), "ledger": ledger}
        show_json({**figures, "unaccounted": ledger.unaccounted, "address": stage.center.url})
        return
    show(ledger.line())
    show(f"{ledger.done} pages in {seconds:.1f} s through {stage.center.url}")
    show("next: `skep demo break` kills an agent during a crawl and checks that nothing is lost")
    show("      `skep up` starts a center and an agent that keep running")
