"""One spider driven to its end: its run, its outputs, and what happens beside it.

Runs in the process of `skep run`. It keeps nothing that matters: all of it is in the center and
in the sinks, in that order. It prints nothing: the caller's `Progress` hears what happens.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from skep.errors import SkepError
from skep.model.ledger import Ledger
from skep.runtime.clock import Clock
from skep.spiders.driving import stats as ends
from skep.spiders.driving.assembly import drive
from skep.spiders.driving.engine import SpiderEngine
from skep.spiders.driving.http_queue import HttpQueue
from skep.spiders.driving.interrupts import pausing
from skep.spiders.driving.stats import Ending, Stats
from skep.spiders.session.item_sinks import SinkWriters, clear_files, filled_files
from skep.spiders.session.plan import SessionPlan, SessionResult
from skep.spiders.session.ports import BringBack, Progress
from skep.spiders.session.run_choice import RunChoice
from skep.spiders.session.wait_notes import note_waits
from skep.wire.client.api import CenterApi

UPDATE_EVERY = 0.2
#: Exit code of a process that a second signal ends at once.
INTERRUPTED = 130


class SpiderSession:
    """One life of a spider's process. Make one for each `run`."""

    def __init__(
        self,
        plan: SessionPlan,
        api: CenterApi,
        bring_back: BringBack | None,
        progress: Progress,
        clock: Clock,
        rng: Random,
    ) -> None:
        """`bring_back`: None for a center that others look after."""
        self._plan = plan
        self._api = api
        self._bring_back = bring_back
        self._progress = progress
        self._clock = clock
        self._rng = rng

    async def run(self) -> SessionResult:
        """To its end. Raises Conflict, NotFound or ConfigurationError before anything is
        downloaded; what happens later is in the result."""
        async with _beside(*([self._bring_back()] if self._bring_back else [])):
            run, finished = await RunChoice(self._plan, self._api, self._clock, self._rng).choose()
            sinks = SinkWriters(self._api, run, self._plan.folder, self._clock, self._rng)
            await self._open(sinks)
            self._progress.chosen(run, finished=finished)
            signals = _Signals(self._progress, run)
            # The crawl has a handler of its own; afterwards a signal ends the wait for sinks.
            with pausing(sinks.give_up, signals):
                ending = _finished_before() if finished else await self._crawl(run, signals)
                signals.finishing = True
                if signals.came and ending.reason == ends.FINISHED:
                    # The signal came too late to pause the run: it ends the wait for sinks.
                    self._progress.leaves_sinks()
                    sinks.give_up()
                await sinks.finish()
            self._progress.ended()
            ledger = None if ending.reason == ends.RESTART else await self._ledger(run)
        done = sinks.output_sinks
        return SessionResult(run, self._plan.spider.name, ending, done, ledger, signals.came)

    async def _open(self, sinks: SinkWriters) -> None:
        clear_files(self._plan.overwritten)
        if self._plan.resume is None:
            for file in filled_files(self._plan.outputs):
                self._progress.appends(file)
        await sinks.open(self._plan.outputs)

    async def _crawl(self, run: str, signals: _Signals) -> Ending:
        spider, progress, clock = self._plan.spider, self._progress, self._clock
        queue = HttpQueue(self._api, run, clock, self._rng, spider.options.center_tries)
        engine = SpiderEngine(spider, queue, clock)
        waits = note_waits(self._api, run, engine.stats, progress.waits, clock)
        async with _beside(self._update(engine.stats), waits):
            return await drive(engine, clock, signals)

    async def _update(self, stats: Stats) -> None:
        while True:
            await self._clock.sleep(UPDATE_EVERY)
            self._progress.update(stats)

    async def _ledger(self, run: str) -> Ledger | None:
        try:
            return (await self._api.runs.show(run)).ledger
        except SkepError:
            return None


class _Signals:
    """Signals are told to the progress; the second one ends the process, and the kernel its
    child."""

    def __init__(self, progress: Progress, run: str) -> None:
        self._progress = progress
        self._run = run
        #: Whether one has come.
        self.came = False
        #: The run has ended, and the sinks get what they lack.
        self.finishing = False

    def first(self) -> None:
        if self.came:  # the first one paused the crawl
            self.second(0)
        self.came = True
        if self.finishing:
            self._progress.leaves_sinks()
        else:
            self._progress.interrupted(self._run, again=False)

    def second(self, _number: int) -> None:
        self._progress.interrupted(self._run, again=True)
        os._exit(INTERRUPTED)


def _finished_before() -> Ending:
    return Ending(ends.FINISHED, "the run was finished before", Stats())


@asynccontextmanager
async def _beside(*calls: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """These run while the context is open, and are cancelled at its end."""
    tasks = [asyncio.create_task(call) for call in calls]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
