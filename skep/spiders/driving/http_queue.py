"""A run's queue at a center, over HTTP: what the engine asks for, with patience.

Runs in the spider's process. Every call may be told again after a broken line: reading
changes nothing, a turn told twice counts once. It gives up after `tries`, and says so.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Literal, TypeVar, cast

from skep.errors import CenterUnreachable, SkepError
from skep.model.ledger import Ledger
from skep.model.run import Run, RunSettings
from skep.runtime.backoff import Backoff
from skep.runtime.clock import Clock
from skep.runtime.retry import Attempts, retry
from skep.wire.api.driver import LastWord, NewDriver, Read, Reading, Turn, TurnDone
from skep.wire.api.runs import RunVerb
from skep.wire.client import CenterClient
from skep.wire.client.api import CenterApi

#: Characters of a reason that are sent.
REASON_LIMIT = 2000
AGAIN = Backoff(first=0.2, cap=10.0)

T = TypeVar("T")
log = logging.getLogger(__name__)


#: What a driver does to its run at the end, and what the run then is.
ENDS: dict[str, Literal["paused", "failed", "finished"]] = {
    "pause": "paused",
    "fail": "failed",
    "finish": "finished",
}


class HttpQueue:
    """The queue of run `run`. Open it first: other calls need the driver's token."""

    def __init__(
        self, client: CenterClient, run: str, clock: Clock, rng: Random, tries: int = 10
    ) -> None:
        self.run = run
        self._api = CenterApi(client.transport)
        self._clock = clock
        self._rng = rng
        self._tries = tries
        self._driver = 0
        #: The run's state as last read.
        self._state = ""

    async def open(self, job: str, settings: RunSettings, patience: float = 0.0) -> Run:
        opened = NewDriver(job, settings, patience)
        answer = await self._patiently(lambda: self._api.driver.start(self.run, opened))
        self._driver = answer.driver
        return answer.run

    async def read(self, limit: int, wait: float, taken: Sequence[int]) -> Reading:
        ask = Read(limit, wait, list(taken), state=self._state)
        reading = await self._patiently(lambda: self._api.driver.read(self.run, ask))
        self._state = reading.state
        return reading

    async def checkpoint(self, turn: Turn) -> TurnDone:
        told = Turn(self._driver, turn.blocks, turn.items, turn.requests, turn.named)
        return await self._patiently(lambda: self._api.driver.save(self.run, told))

    async def end(self, verb: str, reason: str) -> None:
        word = LastWord(self._driver, ENDS[verb], reason[:REASON_LIMIT])
        await self._patiently(lambda: self._api.driver.end(self.run, word))

    async def ledger(self) -> Ledger:
        view = await self._patiently(lambda: self._api.runs.show(self.run))
        return view.ledger

    async def move(self, verb: str) -> None:
        asked = cast("RunVerb", verb)
        await self._patiently(lambda: self._api.runs.change(self.run, asked))

    async def _patiently(self, call: Callable[[], Awaitable[T]]) -> T:
        """Try again what may work later; raises CenterUnreachable in the end (fault 1)."""
        attempts = Attempts(AGAIN, self._rng, self._tries)

        def decide(error: SkepError, failures: int) -> float | None:
            if not error.retryable:
                return None
            log.debug("run %s: %s; try %d", self.run, error.detail, failures)
            return attempts.pause(failures)

        try:
            return await retry(call, SkepError, decide, self._clock.sleep)
        except SkepError as error:
            if not error.retryable:
                raise
            raise CenterUnreachable(f"{error.detail} (tried {self._tries} times)") from error
