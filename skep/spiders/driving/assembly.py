"""A spider's engine with what it needs in a process of its own: a watchdog, and signals.

Runs in the spider's process: `drive` for every process, `drive_alone` for one without a
terminal. Neither prints anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from skep.runtime.clock import Clock
from skep.spiders.authoring.spider import Spider
from skep.spiders.driving.engine import SpiderEngine
from skep.spiders.driving.http_queue import HttpQueue
from skep.spiders.driving.interrupts import Interrupts, die_of, pausing
from skep.spiders.driving.job_queue import JobQueue
from skep.spiders.driving.stats import Ending
from skep.spiders.driving.watchdog import watchdog
from skep.wire.client import CenterClient
from skep.wire.client.api import CenterApi


async def drive(engine: SpiderEngine, clock: Clock, interrupts: Interrupts) -> Ending:
    """Run an engine to its end. A signal pauses the run after the block in hand."""
    async with watchdog(engine.longest_silence, clock):
        with pausing(engine.pause, interrupts):
            return await engine.run()


async def drive_alone(
    spider: Spider,
    centers: Sequence[str],
    token: str,
    run: str,
    clock: Clock,
    rng: Random,
    *,
    kept: bool = False,
) -> Ending:
    """Run a spider to its end. `kept`: a job keeps the run, and a signal ends this process
    without pausing it."""
    async with CenterClient(centers, token, clock, rng) as client:
        kind = JobQueue if kept else HttpQueue
        queue = kind(CenterApi(client.transport), run, clock, rng, spider.options.center_tries)
        return await drive(SpiderEngine(spider, queue, clock), clock, _Leave(queue))


class _Leave:
    """A signal to a run that a job keeps only ends the process; a second one kills it."""

    def __init__(self, queue: HttpQueue) -> None:
        self._queue = queue

    def first(self) -> None:
        if isinstance(self._queue, JobQueue):
            self._queue.leaving = True

    def second(self, number: int) -> None:
        die_of(number)
