"""The start of `skep run`: first its center, then everything else.

Runs in the process of `skep run`. A center takes longer to start than this process needs to
import its modules, so both happen at the same time. Do not import large modules at the top.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, TextIO, cast

from skep.cli.commands.crawl.session_progress import SessionProgress
from skep.cli.commands.crawl.spider_progress import AboveBar, SpiderProgress, printing_above
from skep.cli.terminal.wait_outcome import NO_DEAD, AllowDead
from skep.embed.center_address import CenterAddress
from skep.embed.forked_center import ForkedProcess, clear_traces, fork_center
from skep.embed.local_center import LOG, STARTED_BY, DataFolderCenter, started_by, up_words
from skep.runtime.clock import SystemClock
from skep.runtime.logging import start_logging

if TYPE_CHECKING:
    from skep.spiders.session.plan import SessionPlan
    from skep.spiders.session.ports import BringBack
    from skep.wire.client import CenterClient


#: Large modules that this process and its center both need: imported once, before the fork.
SHARED = ("skep.wire.client", "skep.center.http.authentication")
#: Modules that only this process needs, such as parsers.
OWN = ("parsel", "skep.spiders.session.session", "skep.cli.commands.crawl.run_summary")


@dataclass(frozen=True, slots=True)
class SpiderRunPlan:
    """The options of the command line."""

    reach: CenterAddress
    session: SessionPlan
    #: The command line that continues the run, without the name of the run.
    again: str
    as_json: bool
    verbose: bool
    allow_dead: AllowDead = NO_DEAD
    #: A center that was already started for this run.
    begun: ForkedProcess | None = None

    def resumes(self, run: str) -> str:
        """The command line that continues this run."""
        return f"{self.again} --resume {run}"


def begin_center(reach: CenterAddress, folder: Path) -> ForkedProcess | None:
    """Start a center before the code of the spider is loaded. None if a center was named, already
    runs or cannot be forked; `drive` then finds or starts one."""
    if reach.center is not None:
        return None
    first = os.getpid()
    for name in SHARED:
        import_module(name)

    def become_center() -> int:
        from skep.cli.main import run

        os.environ[STARTED_BY] = started_by(first)
        return run(up_words(reach, folder, 0))

    return fork_center(folder, folder / LOG, become_center)


@contextmanager
def center_begun(reach: CenterAddress, folder: Path) -> Iterator[ForkedProcess | None]:
    """Like `begin_center`; if the block raises, stop the center and remove its empty files."""
    had = folder.exists()
    begun = begin_center(reach, folder)
    try:
        yield begun
    except BaseException:
        if begun is not None:
            begun.drop()
            clear_traces([folder / LOG, *([] if had else [folder])])
        raise


class Restart(Exception):
    """The process must be restarted with this run."""


async def drive(plan: SpiderRunPlan) -> int:
    """Run the spider and return the exit code of `skep run`."""
    clock, rng = SystemClock(), Random()  # noqa: S311 - jitter and names, no secrets
    bar = SpiderProgress(sys.stderr, clock)
    start_logging(
        cast("TextIO", AboveBar(bar, sys.stderr)),
        logging.DEBUG if plan.verbose else logging.INFO,
        sentences=True,
    )
    logging.getLogger("skep.spiders").setLevel(logging.DEBUG if plan.verbose else logging.WARNING)
    with printing_above(bar, sys.stdout):
        async with _center(plan, clock, rng, bar) as (client, bring_back):
            return await _session(plan, client, bring_back, bar, clock, rng)


async def _session(
    plan: SpiderRunPlan,
    client: CenterClient,
    bring_back: BringBack | None,
    bar: SpiderProgress,
    clock: SystemClock,
    rng: Random,
) -> int:
    from skep.cli.commands.crawl.run_summary import exit_code, tell
    from skep.cli.commands.results.wait_reasons import say_failures
    from skep.spiders.driving.stats import RESTART
    from skep.spiders.session.session import SpiderSession
    from skep.wire.client.api import CenterApi

    api = CenterApi(client.transport)
    progress = SessionProgress(bar, client.address, plan.resumes)
    session = SpiderSession(plan.session, api, bring_back, progress, clock, rng)
    result = await session.run()
    if result.ending.reason == RESTART:
        raise Restart(result.run)
    tell(result, as_json=plan.as_json)
    await say_failures(client, result.run, result.ledger.dead if result.ledger else 0)
    return exit_code(result, plan.resumes(result.run), plan.allow_dead)


@asynccontextmanager
async def _center(
    plan: SpiderRunPlan, clock: SystemClock, rng: Random, bar: SpiderProgress
) -> AsyncIterator[tuple[CenterClient, BringBack | None]]:
    """A client for the named center, or for the center of the data folder together with the
    supervisor that restarts it."""
    if plan.reach.center is not None:
        async with plan.reach.client() as client:
            yield client, None
        return
    nearby = DataFolderCenter(plan.reach, plan.session.folder, clock, rng, bar.note)
    try:
        await nearby.start(plan.begun, meanwhile=load)
        from skep.wire.client import CenterClient

        async with CenterClient([nearby.url], nearby.token(), clock, rng) as client:
            yield client, nearby.keep
    finally:
        await nearby.stop()


def load() -> None:
    """Import the modules of a run while the center starts, so that the first page is not
    delayed."""
    for name in (*SHARED, *OWN):
        import_module(name)
