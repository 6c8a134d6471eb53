"""A run's queue at a center, over its API: what the engine asks for, with retries.

Runs in the spider's process. Every call may be sent again after a broken connection: reading
changes nothing, a checkpoint sent twice counts once.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Literal, cast

from skep.model.ledger import Ledger
from skep.model.run import Run, RunSettings
from skep.runtime.clock import Clock
from skep.spiders.driving.center_retries import CenterRetries
from skep.wire.api.driver import LastWord, NewDriver, Read, Reading, Turn, TurnDone
from skep.wire.api.runs import RunVerb
from skep.wire.client.api import CenterApi

#: Characters of a reason that are sent.
REASON_LIMIT = 2000
#: What a driver does to its run at the end, and what the run then is.
ENDS: dict[str, Literal["paused", "failed", "finished"]] = {
    "pause": "paused",
    "fail": "failed",
    "finish": "finished",
}


class HttpQueue:
    """The queue of run `run`. Open it first: other calls need the driver's token."""

    def __init__(
        self, api: CenterApi, run: str, clock: Clock, rng: Random, tries: int = 10
    ) -> None:
        self.run = run
        self._api = api
        self._retries = CenterRetries(clock, rng, tries)
        self._driver = 0
        #: The run's state as last read.
        self._state = ""

    async def open(self, job: str, settings: RunSettings, patience: float = 0.0) -> Run:
        opened = NewDriver(job, settings, patience=patience)
        answer = await self._retries.call(lambda: self._api.driver.start(self.run, opened))
        self._driver = answer.driver
        return answer.run

    async def read(self, limit: int, wait: float, taken: Sequence[int]) -> Reading:
        ask = Read(limit, wait, list(taken), state=self._state)
        reading = await self._retries.call(lambda: self._api.driver.read(self.run, ask))
        self._state = reading.state
        return reading

    async def checkpoint(self, turn: Turn) -> TurnDone:
        told = Turn(self._driver, turn.blocks, turn.items, turn.requests, turn.named)
        return await self._retries.call(lambda: self._api.driver.save(self.run, told))

    async def end(self, verb: str, reason: str) -> None:
        word = LastWord(self._driver, ENDS[verb], reason[:REASON_LIMIT])
        await self._retries.call(lambda: self._api.driver.end(self.run, word))

    async def ledger(self) -> Ledger:
        view = await self._retries.call(lambda: self._api.runs.show(self.run))
        return view.ledger

    async def move(self, verb: str) -> None:
        asked = cast("RunVerb", verb)
        await self._retries.call(lambda: self._api.runs.change(self.run, asked))
