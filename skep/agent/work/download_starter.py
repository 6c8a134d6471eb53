"""Starts downloads while there is capacity, in the order in which blocks were leased.

Runs on the agent's event loop, once per batch of outcomes and not once per outcome. It never
waits: a request that cannot be started now is started when another ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from skep.agent.hosts.host_scheduler import HostScheduler
from skep.agent.work.held_blocks import HeldBlock, HeldBlocks
from skep.agent.work.prefetch import UNREPORTED_LIMIT
from skep.agent.work.run_downloaders import RunDownloaders, start
from skep.model.request import Work
from skep.model.run import RunSettings

#: Maximum starts in one round; then heartbeats and other tasks run.
ROUND = 512
#: Minimum seconds between two checks of due hosts while there is no capacity.
SHORTEST_WAIT = 0.01


class DownloadStarter:
    """`wake` it after every change; it runs at most once per iteration of the event loop."""

    def __init__(
        self,
        holding: HeldBlocks,
        downloaders: RunDownloaders,
        host_scheduler: HostScheduler,
        settings_of: Callable[[str], RunSettings | None],
        concurrency: int,
        after_round: Callable[[], None],
    ) -> None:
        self._holding = holding
        self._downloaders = downloaders
        self._host_scheduler = host_scheduler
        self._alarm: asyncio.TimerHandle | None = None
        self._settings_of = settings_of
        self._concurrency = concurrency
        self._after_round = after_round
        self._poked = False
        holding.changed = self.wake

    def wake(self) -> None:
        """Something has ended or arrived."""
        if not self._poked:
            self._poked = True
            asyncio.get_running_loop().call_soon(self._round)

    def _round(self) -> None:
        # `_poked` stays set meanwhile: a downloader can answer before `start` returns.
        while self._holding.broken:
            self._downloaders.discard(self._holding.broken.pop())
        budget = ROUND - self._host_scheduler.admit(min(ROUND, self._room()))
        while budget > 0 and (batch := self._next_batch(budget)):
            block, works = batch
            budget -= len(works)
            self._start(block, works)
        self._poked = False
        if budget <= 0:
            self.wake()
        self._wait_for_hosts()
        self._after_round()

    def _next_batch(self, budget: int) -> tuple[HeldBlock, list[Work]] | None:
        return self._holding.next_works(min(budget, self._room()))

    def _room(self) -> int:
        if self._holding.unreported >= UNREPORTED_LIMIT or self._downloaders.held:
            return 0
        return self._concurrency - self._holding.active

    def _start(self, block: HeldBlock, works: list[Work]) -> None:
        # Settings come with the lease; they are missing only for a run that was just released.
        settings = self._settings_of(block.run) or RunSettings()
        downloader = self._downloaders.of(block.run, settings)
        done = block.done
        for work in works:
            start(downloader, block.run, work, done)

    def _wait_for_hosts(self) -> None:
        """Run again when the next rate-limited request is due."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        seconds = self._host_scheduler.next_due()
        if seconds is not None:
            loop = asyncio.get_running_loop()
            self._alarm = loop.call_later(max(seconds, SHORTEST_WAIT), self.wake)
