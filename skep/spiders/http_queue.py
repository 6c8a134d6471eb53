"""A run's queue at a center, over HTTP: what the engine asks for, with patience.

Runs in the spider's process. Every call may be told again after a broken line: reading
changes nothing, a turn told twice counts once. It gives up after `tries`, and says so.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from skep.errors import CenterUnreachable, SkepError
from skep.model.ledger import Ledger
from skep.model.run import Run, RunSettings
from skep.runtime.backoff import Backoff
from skep.runtime.clock import Clock
from skep.spiders.ports import Reading, Turn, TurnDone
from skep.wire.client import CALL_SECONDS, CenterClient

#: Beyond what a read may wait at the center.
READ_MARGIN = 30.0
TURN_SECONDS = 60.0
#: Characters of a reason that are sent.
REASON_LIMIT = 2000
AGAIN = Backoff(first=0.2, cap=10.0)

T = TypeVar("T")
log = logging.getLogger(__name__)


class OpenDriver(msgspec.Struct):
    """POST /requestqueue/{run}/driver."""

    job: str
    settings: RunSettings
    patience: float


class Driver(msgspec.Struct):
    """Its answer: the run, and the token of whoever drives it now."""

    run: Run
    driver: int


class ReadAsk(msgspec.Struct):
    """POST /requestqueue/{run}/read."""

    limit: int
    wait: float
    taken: list[int]
    state: str


class LastWord(msgspec.Struct):
    """POST /requestqueue/{run}/end."""

    driver: int
    state: str
    reason: str


#: What a driver does to its run at the end, and what the run then is.
ENDS = {"pause": "paused", "fail": "failed", "finish": "finished"}


class _RunView(msgspec.Struct):
    ledger: Ledger


class HttpQueue:
    """The queue of run `run`. Open it first: other calls need the driver's token."""

    def __init__(
        self, client: CenterClient, run: str, clock: Clock, rng: Random, tries: int = 10
    ) -> None:
        self.run = run
        self._client = client
        self._clock = clock
        self._rng = rng
        self._tries = tries
        self._driver = 0
        #: The run's state as last read.
        self._state = ""
        self._name = quote(run, safe="")

    async def open(self, job: str, settings: RunSettings, patience: float = 0.0) -> Run:
        message, seconds = OpenDriver(job, settings, patience), await self._client.start_seconds()
        answer = await self._post("driver", message, Driver, seconds)
        self._driver = answer.driver
        return answer.run

    async def read(self, limit: int, wait: float, taken: Sequence[int]) -> Reading:
        ask = ReadAsk(limit, wait, list(taken), self._state)
        reading = await self._post("read", ask, Reading, wait + READ_MARGIN)
        self._state = reading.state
        return reading

    async def turn(self, turn: Turn) -> TurnDone:
        told = Turn(self._driver, turn.blocks, turn.items, turn.requests, turn.named)
        return await self._post("turn", told, TurnDone, TURN_SECONDS)

    async def end(self, verb: str, reason: str) -> None:
        word = LastWord(self._driver, ENDS[verb], reason[:REASON_LIMIT])
        await self._post("end", word, dict)

    async def ledger(self) -> Ledger:
        path = f"/api/v1/runs/{self._name}"
        view = await self._patiently(lambda: self._client.call("GET", path, None, _RunView))
        return view.ledger

    async def move(self, verb: str) -> None:
        path = f"/api/v1/runs/{self._name}/{verb}"
        await self._patiently(lambda: self._client.call("POST", path, None, bytes))

    async def _post(
        self, name: str, message: Any, reply: type[T], seconds: float = CALL_SECONDS
    ) -> T:
        path = f"/requestqueue/{self._name}/{name}"
        return await self._patiently(lambda: self._client.packed(path, message, reply, seconds))

    async def _patiently(self, call: Callable[[], Awaitable[T]]) -> T:
        """Try again what may work later; raises CenterUnreachable in the end (fault 1)."""
        for attempt in range(1, self._tries + 1):
            try:
                return await call()
            except SkepError as error:
                if not error.retryable:
                    raise
                failure = error
            if attempt < self._tries:
                log.debug("run %s: %s; try %d", self.run, failure.detail, attempt)
                await self._clock.sleep(AGAIN.delay(attempt, self._rng))
        raise CenterUnreachable(f"{failure.detail} (tried {self._tries} times)")
