"""One spider against one center, put together: client, queue, engine, signals.

Runs in the spider's process, started from a terminal or by a job. Ctrl-C or SIGTERM pauses
the run after the block in hand; a second one ends the process at once, and even then
nothing is half told.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from random import Random

from skep.runtime.clock import Clock
from skep.spiders.authoring.spider import Spider
from skep.spiders.driving.engine import SpiderEngine
from skep.spiders.driving.http_queue import HttpQueue
from skep.spiders.driving.job_queue import JobQueue
from skep.spiders.driving.stats import Ending, Stats
from skep.spiders.driving.watchdog import watchdog
from skep.wire.client import CenterClient

SIGNALS = (signal.SIGINT, signal.SIGTERM)


async def drive(
    spider: Spider,
    centers: Sequence[str],
    token: str,
    run: str,
    clock: Clock,
    rng: Random,
    watch: Callable[[Stats], None] | None = None,
    *,
    kept: bool = False,
) -> Ending:
    """Run a spider to its end. `watch` gets the figures once, and may look at them later.

    `kept`: a job keeps the run, and a signal ends this process without pausing it.
    """
    async with CenterClient(centers, token, clock, rng) as client:
        kind = JobQueue if kept else HttpQueue
        queue = kind(client, run, clock, rng, spider.options.center_tries)
        engine = SpiderEngine(spider, queue, clock)
        if watch is not None:
            watch(engine.stats)
        async with watchdog(engine.longest_silence, clock):
            with _pauses_on_signals(engine, queue):
                return await engine.run()


@contextmanager
def _pauses_on_signals(engine: SpiderEngine, queue: HttpQueue) -> Iterator[None]:
    loop = asyncio.get_running_loop()

    def pause() -> None:
        if isinstance(queue, JobQueue):
            queue.leaving = True
        engine.pause()
        for number in SIGNALS:
            loop.remove_signal_handler(number)

    for number in SIGNALS:
        loop.add_signal_handler(number, pause)
    try:
        yield
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)
