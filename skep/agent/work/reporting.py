"""Sends results to a center: in batches, retried a few times, then through the outbox.

Runs on the agent's event loop. At most two reports are under way. While there are reports in the
outbox new ones queue up behind them, so that the parts of a block arrive in order. A result ends as
delivered, on disk, or counted as dropped.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import TypeVar

from skep.agent.slow_calls import noticed_when_slow
from skep.agent.work.held_blocks import HeldBlocks
from skep.agent.work.outbox import Outbox, StoredReport
from skep.agent.work.report_splitting import split_report
from skep.errors import InvalidInput, OldProtocol, SkepError, TooLarge
from skep.model.block import BlockReport, Held
from skep.runtime.backoff import Backoff
from skep.runtime.clock import Clock
from skep.runtime.retry import Attempts, Pauses, retry
from skep.runtime.signals import WakeUp
from skep.settings import AgentSettings
from skep.wire.client import CenterClient
from skep.wire.messages import GiveBack, Report

log = logging.getLogger(__name__)

T = TypeVar("T")

RETRY = Backoff(first=0.5, cap=5.0)
#: Maximum seconds between two checks of the outbox; an answered heartbeat comes first.
RESEND = Backoff(first=1.0, cap=30.0)
UNDER_WAY = 2
#: Seconds for which a finished block waits for others that are being downloaded.
LINGER = 0.02

REFUSED, UNANSWERED = "refused", "unanswered"


@dataclass(frozen=True, slots=True)
class _Answer:
    """Results by block: of a center, or that no center will ever accept it."""

    verdicts: dict[int, str]

    @property
    def refused(self) -> bool:
        return all(verdict == REFUSED for verdict in self.verdicts.values())


class Reporter:
    """Sends the reports that `holding` has ready. `report_now` and `center_is_back` wake it."""

    def __init__(
        self,
        agent: str,
        client: CenterClient,
        holding: HeldBlocks,
        outbox: Outbox,
        settings: AgentSettings,
        clock: Clock,
        rng: Random,
    ) -> None:
        self._tries = settings.report_tries
        self._agent = agent
        self._client = client
        self._holding = holding
        self._outbox = outbox
        self._every = settings.report_every
        self._clock = clock
        self._rng = rng
        self._work = WakeUp(clock)
        self._back = WakeUp(clock)
        self._under_way = 0
        self._slots = asyncio.Semaphore(UNDER_WAY)
        self._hurry = False
        #: Called when memory was freed: waiting downloads may start.
        self.relieved = _nothing
        #: Called when a center is slow; a heartbeat then checks whether it is still there.
        self.slow = _nothing
        #: Results that no center accepts because of their content.
        self.refused = 0
        #: Total number of blocks that were given back.
        self.returned = 0

    def report_now(self) -> None:
        """A block has ended, or has to be given back."""
        self._work.notify()

    def center_is_back(self) -> None:
        """A center answered: send the reports on disk without delay."""
        self._back.notify()

    async def run(self) -> None:
        """Runs without end; when it is cancelled, reports under way are written to disk."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._empty_outbox())
            while True:
                await self._slots.acquire()
                reports, returns = await self._next()
                self._under_way += 1
                group.create_task(self._send(reports, returns))

    async def _next(self) -> tuple[list[BlockReport], list[Held]]:
        while True:
            if self._holding.ready and self._holding.active and not self._hurry:
                await self._clock.sleep(LINGER)
            self._holding.ready = False
            returns = self._holding.take_returns()
            reports = self._holding.take_due(self._clock.monotonic(), self._report_after())
            if reports or returns:
                self.returned += len(returns)
                return reports, returns
            await self._work.wait(self._until_due())

    def _report_after(self) -> float:
        return 0.0 if self._hurry else self._every

    def _until_due(self) -> float | None:
        if self._holding.ready:
            return 0.0
        due = self._holding.next_due(self._report_after())
        if due is not None:
            return max(due - self._clock.monotonic(), 0.0)
        # An outcome that arrives meanwhile is not due before this is over.
        return self._every if self._holding.blocks else None

    async def _send(self, reports: list[BlockReport], returns: list[Held]) -> None:
        try:
            if reports:
                await self._deliver(Report(self._agent, reports))
            if returns:
                await self._give_back(returns)
        finally:
            self._under_way -= 1
            self._slots.release()
            self._work.notify()
            self.relieved()

    async def _deliver(self, report: Report) -> None:
        if len(self._outbox):
            await self._spill(report)
            return
        try:
            answer = await self._try(report, 1 if self._hurry else self._tries)
        except asyncio.CancelledError:
            self._outbox.put(report)  # on the loop: the process is about to end
            raise
        if answer is None:
            await self._spill(report)
        else:
            self._settle(report, answer)

    async def _try(self, report: Report, tries: int) -> _Answer | None:
        """None when no center accepted it now, but one may later."""
        try:
            return await self._retried(lambda: self._report(report), tries, "report")
        except SkepError:
            return None

    async def _retried(self, call: Callable[[], Awaitable[T]], tries: int, what: str) -> T:
        attempts = Attempts(RETRY, self._rng, tries)

        def decide(error: SkepError, failures: int) -> float | None:
            log.debug("%s: %s", what, error.detail)
            return attempts.pause(failures)

        return await retry(call, SkepError, decide, self._clock.sleep)

    async def _report(self, report: Report) -> _Answer:
        try:
            with noticed_when_slow(self.slow):
                reply = await self._client.report(report)
        except OldProtocol:
            raise  # temporary: a center is being upgraded
        except InvalidInput as error:
            log.warning("the center refused a report: %s", error.detail)
            return await self._report_parts(report, error)
        return _Answer({one.block: one.verdict for one in reply.verdicts})

    async def _report_parts(self, report: Report, error: InvalidInput) -> _Answer:
        """Find the refused block; one that is too large is reduced."""
        parts = report.blocks
        if len(parts) == 1:
            smaller = split_report(parts[0]) if isinstance(error, TooLarge) else None
            parts = [smaller] if smaller else []
        verdicts = {block.block: REFUSED for block in report.blocks}
        for part in parts:
            verdicts |= (await self._report(Report(report.agent, [part]))).verdicts
        return _Answer(verdicts)

    def _settle(self, report: Report, answer: _Answer) -> None:
        for block in report.blocks:
            verdict = answer.verdicts.get(block.block, UNANSWERED)
            if verdict == REFUSED:
                self.refused += len(block.outcomes)
            self._holding.settle(block, verdict)

    async def _spill(self, report: Report) -> None:
        await asyncio.to_thread(self._outbox.put, report)
        self._holding.mark_gaps(self._outbox.missing())
        for block in report.blocks:
            self._holding.spilled(block)
        self._back.notify()

    async def _empty_outbox(self) -> None:
        """Oldest first, one at a time; a file is deleted only after the center's answer."""
        pauses = Pauses(RESEND, self._rng)
        while True:
            kept = await asyncio.to_thread(self._outbox.oldest) if len(self._outbox) else None
            if kept is None:
                pauses.succeeded()
                await self._back.wait()
            elif await self._resend(kept):
                pauses.succeeded()
            else:
                await self._back.wait(pauses.failed())

    async def _resend(self, kept: StoredReport) -> bool:
        answer = await self._try(kept.report, 1)
        if answer is None:
            return False
        if answer.refused:
            await asyncio.to_thread(self._outbox.refuse, kept.path)
        else:
            await asyncio.to_thread(self._outbox.remove, kept.path)
        self._holding.mark_gaps(self._outbox.missing())
        if kept.cut_short:
            await self._give_back(list(kept.cut_short), "a part of its results was dropped")
        return True

    async def _give_back(
        self, blocks: Sequence[Held], reason: str = "the agent released it"
    ) -> None:
        """Retried a few times; after that the leases expire."""
        message = GiveBack(self._agent, list(blocks), reason)
        try:
            await self._retried(lambda: self._client.give_back(message), self._tries, "give back")
        except SkepError:
            log.warning("could not give back %d blocks; their leases will expire", len(blocks))

    async def flush(self) -> None:
        """Return when nothing waits in memory: all is delivered, given back or on disk."""
        self._hurry = True
        while self._holding.blocks or self._under_way:
            self._work.notify()
            await self._clock.sleep(0.01)

    def save_rest(self) -> None:
        """The time is over: write everything in memory to disk, on the loop."""
        while reports := self._holding.take_due(self._clock.monotonic(), 0.0):
            self._outbox.put(Report(self._agent, reports))
            for report in reports:
                self._holding.spilled(report)


def _nothing() -> None:
    """No listener."""
