"""Sends the results of parsed blocks to the queue, gathered into checkpoints, one at a time.

Runs in the spider's process. While a checkpoint is being sent the next blocks are parsed. A
block counts as taken only with the checkpoint that holds all of its results.
"""

from __future__ import annotations

import asyncio
import logging
import re

from skep.errors import InvalidInput
from skep.model.hosts.named_places import PLACES_LIMIT
from skep.model.request import NewRequest
from skep.spiders.driving.harvest import REQUEST_BYTES, Harvest
from skep.spiders.driving.stats import Stats
from skep.spiders.ports import FoundItem, RunQueue, Turn

#: A checkpoint is sent at these sizes, or when there is nothing more to parse.
CHECKPOINT_BLOCKS = 8
CHECKPOINT_REQUESTS = 20_000
CHECKPOINT_BYTES = 8 * 2**20

_WHICH = re.compile(r"request (\d+): ")

log = logging.getLogger(__name__)


class Checkpoints:
    """Gathers and sends."""

    def __init__(self, queue: RunQueue, stats: Stats) -> None:
        self._queue = queue
        self._stats = stats
        self._blocks: list[int] = []
        self._items: list[FoundItem] = []
        self._requests: list[NewRequest] = []
        self._named: set[str] = set()
        self._bytes = 0
        #: How many items and requests belong to blocks that have ended.
        self._whole = (0, 0)
        self._flight: asyncio.Task[None] | None = None
        self._flying: list[int] = []
        #: Checkpoints that were begun and requests that they added, to compare with a reading.
        self.begun = 0
        self.added = 0

    @property
    def in_hand(self) -> list[int]:
        """Blocks that the next reading should leave out."""
        flying = self._flight is not None and not self._flight.done()
        return self._blocks + (self._flying if flying else [])

    @property
    def idle(self) -> bool:
        """Nothing gathered, nothing on its way."""
        flying = self._flight is not None and not self._flight.done()
        return not (self._blocks or self._items or self._requests or flying)

    async def add(self, harvest: Harvest) -> None:
        """Gather the results of a page. Very many results are sent before their block has ended;
        sent again, they are known."""
        self._items += harvest.items
        self._requests += harvest.requests
        self._named |= harvest.named
        self._bytes += harvest.bytes
        while len(self._requests) >= 2 * CHECKPOINT_REQUESTS or self._bytes >= 2 * CHECKPOINT_BYTES:
            await self._part()

    async def end_block(self, block: int) -> None:
        """All of a block is gathered."""
        self._blocks.append(block)
        self._whole = (len(self._items), len(self._requests))
        if (
            len(self._blocks) >= CHECKPOINT_BLOCKS
            or len(self._requests) >= CHECKPOINT_REQUESTS
            or self._bytes >= CHECKPOINT_BYTES
        ):
            await self.send()

    async def send(self) -> None:
        """Send what is gathered after the checkpoint before has arrived; raises its error."""
        await self.arrived()
        if not (self._blocks or self._items or self._requests):
            return
        turn = Turn(0, self._blocks, self._items, self._requests, self._places())
        self._flying, self._blocks, self._items, self._requests = self._blocks, [], [], []
        self._bytes, self._whole = 0, (0, 0)
        self._start(turn)

    async def _part(self) -> None:
        await self.arrived()
        turn = Turn(0, [], self._items, self._requests[:CHECKPOINT_REQUESTS], self._places())
        self._items, self._requests = [], self._requests[CHECKPOINT_REQUESTS:]
        self._bytes = sum(len(request.uri) + REQUEST_BYTES for request in self._requests)
        self._flying, self._whole = [], (0, max(0, self._whole[1] - CHECKPOINT_REQUESTS))
        self._start(turn)

    def _places(self) -> list[str]:
        """Sent before or with the first request that needs them."""
        named, self._named = sorted(self._named)[:PLACES_LIMIT], set()
        return named

    def _start(self, turn: Turn) -> None:
        self.begun += 1
        self._stats.turns += 1
        self._flight = asyncio.create_task(self._tell(turn))

    async def arrived(self) -> None:
        """Wait for the checkpoint that is on its way; raises its error."""
        if self._flight is not None:
            transfer, self._flight = self._flight, None
            await transfer

    async def settle(self) -> None:
        """Everything is stored when this returns."""
        await self.send()
        await self.arrived()

    async def settle_blocks(self) -> None:
        """The same for blocks that have ended; results of half a block are dropped."""
        await self.arrived()
        items, requests = self._whole
        del self._items[items:], self._requests[requests:]
        await self.settle()

    async def _tell(self, turn: Turn) -> None:
        while True:
            try:
                done = await self._queue.checkpoint(turn)
            except InvalidInput as error:
                self._leave_out(turn, error)
            else:
                break
        self.added += done.requests
        self._stats.requests += done.requests
        self._stats.known += done.known
        self._stats.items += done.items

    def _leave_out(self, turn: Turn, error: InvalidInput) -> None:
        """One request that the center refuses must not block all others."""
        which = _WHICH.match(error.detail)
        if which is None or int(which[1]) >= len(turn.requests):
            raise error
        refused = turn.requests.pop(int(which[1]))
        self._stats.not_urls += 1
        log.warning("the center refuses %.200s: %s", refused.uri, error.detail)

    async def drop(self) -> None:
        """Drop what was not sent: the next driver reads its blocks again."""
        self._blocks, self._items, self._requests, self._bytes = [], [], [], 0
        if self._flight is not None:
            transfer, self._flight = self._flight, None
            transfer.cancel()
            await asyncio.gather(transfer, return_exceptions=True)
