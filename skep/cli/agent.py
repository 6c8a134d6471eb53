"""`skep agent`: leases work from a center, downloads it and reports. It only dials out."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import click

from skep.cli.options import dial_options, process_options
from skep.runtime.clock import SystemClock

if TYPE_CHECKING:
    from skep.settings import Settings


@click.command("agent")
@dial_options
@process_options
@click.option("--name", help="Name shown to people; the host's by default.")
@click.option("--group", help="Group for placement.")
@click.option("--label", "labels", multiple=True, metavar="NAME=VALUE", help="A label; repeatable.")
@click.option("--processes", type=click.IntRange(1, 256), help="Processes, each an agent.")
@click.option("--concurrency", type=click.IntRange(1, 4096), help="Downloads at the same time.")
def command(
    center: str | None,
    token_file: Path | None,
    data: Path | None,
    config: Path | None,
    chosen: tuple[str, ...],
    verbose: bool,
    name: str | None,
    group: str | None,
    labels: tuple[str, ...],
    processes: int | None,
    concurrency: int | None,
) -> int:
    """Start an agent that works for a center.

    It keeps its identity and its unsent results in the data folder. Ctrl-C or SIGTERM lets
    running downloads end and gives the rest back; a second one ends it at once.
    """
    import uvloop

    from skep.cli.config import read_settings, split_pair
    from skep.cli.reach import addresses, find_token
    from skep.runtime.logging import start_logging

    flags = {
        "agent.name": name,
        "agent.group": group,
        "agent.processes": processes,
        "agent.concurrency": concurrency,
    }
    settings = read_settings(config, data, chosen, flags)
    start_logging(sys.stderr, logging.DEBUG if verbose else logging.INFO)
    if settings.agent.processes > 1:
        return uvloop.run(_supervise(settings))
    folder = Path(settings.data)
    urls = addresses(center, folder)
    token = find_token(token_file, folder / "agent.token")
    pairs = dict(split_pair(text, "--label") for text in labels)
    return uvloop.run(_work(settings, urls, token, pairs))


async def _work(settings: Settings, urls: list[str], token: str, labels: Mapping[str, str]) -> int:
    from skep.agent.app import run_until_signalled
    from skep.agent.launch import LaunchedAgent

    clock, rng = SystemClock(), Random()  # noqa: S311 - jitter and names, no secrets
    folder = Path(settings.data) / "agent"
    launched = LaunchedAgent(settings, urls, token, folder, labels, clock, rng)
    try:
        return await run_until_signalled(launched.agent)
    finally:
        await launched.close()


async def _supervise(settings: Settings) -> int:
    from skep.agent.processes import supervise

    folder = Path(settings.data)

    def argv(number: int) -> list[str]:
        """The same command again, as one process with a folder and a name of its own."""
        mine = ["--processes", "1", "--data", str(folder / f"process-{number}")]
        if settings.agent.name:
            mine += ["--name", f"{settings.agent.name}-{number}"]
        return [sys.executable, "-m", "skep", *sys.argv[1:], *mine, *_place(folder)]

    return await supervise(argv, settings.agent.processes, SystemClock(), Random())  # noqa: S311


def _place(folder: Path) -> list[str]:
    """What a child would look for in the data folder of its parent."""
    given = click.get_current_context().params
    found: list[str] = []
    if given["center"] is None and (folder / "center.url").exists():
        found += ["--center", (folder / "center.url").read_text().strip()]
    if given["token_file"] is None and (folder / "agent.token").exists():
        found += ["--token-file", str(folder / "agent.token")]
    return found
