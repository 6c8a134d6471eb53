"""Reads the items of a run from its center, in order, for the sinks of a session.

A center that does not answer is tried again without end while the run goes on, and a number of
times when it has ended. Reading changes nothing.
"""

from __future__ import annotations

import asyncio
from random import Random

from skep.errors import ConfigurationError, SkepError, UnknownRun
from skep.runtime.backoff import Backoff
from skep.runtime.clock import Clock
from skep.runtime.retry import Attempts, retry
from skep.streams.ports import Record
from skep.wire.api.results import ItemPage
from skep.wire.client.api import CenterApi

#: When the run has ended: tries of one call.
LAST_TRIES = 12
AGAIN = Backoff(first=0.2, cap=3.0)


class ItemSource:
    """The items of one run."""

    def __init__(
        self, api: CenterApi, run: str, ended: asyncio.Event, clock: Clock, rng: Random
    ) -> None:
        self._api = api
        self._run = run
        self._ended = ended
        self._clock = clock
        self._attempts = Attempts(AGAIN, rng, LAST_TRIES)

    async def read(self, after: int, limit: int) -> list[Record]:
        """The next items. Raises ConfigurationError when the center does not answer in the end."""
        late, page = 0, ItemPage(after, limit)

        def decide(error: SkepError, _failures: int) -> float | None:
            nonlocal late
            late = late + 1 if self._ended.is_set() else 1
            return self._attempts.pause(late) if error.retryable else None

        try:
            items = await retry(
                lambda: self._api.results.items(self._run, page),
                SkepError,
                decide,
                self._clock.sleep,
            )
        except UnknownRun:
            # It is opened by the engine, perhaps in a moment.
            return []
        except SkepError as error:
            # Not Unavailable: to the sink writer that would be the sink's.
            raise ConfigurationError(error.detail) from error
        return [Record(item.id, item.data) for item in items.items]
