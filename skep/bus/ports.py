"""The contract of a bus with centers. Everything in it can be rebuilt from the store.

A method raises `BusDown` when the engine does not answer; nothing durable depends on it.
Blocks may be offered twice or vanish: `Blocks.lease` of the store decides, the lanes only give
the order of attempts. `testing/conformance/bus/suite.py` runs on every backend.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Protocol

from skep.model.block import BlockRef
from skep.model.lane import Lane


class Lanes(Protocol):
    """Bounded, ordered queues of blocks, counted in requests."""

    async def push(self, refs: Sequence[BlockRef]) -> list[BlockRef]:
        """Put blocks at the head or tail of their lanes; a block that is in a lane already stays.

        Returns those that did not fit: a lane accepts a block only while its requests plus
        the block's do not exceed its limit (an empty lane accepts any block).
        """

    async def pop(
        self, order: Sequence[Lane], targets: Sequence[str], limit: int
    ) -> list[BlockRef]:
        """Take up to `limit` blocks, going through the lanes in `order`, from their heads.

        Takes only blocks whose `target` is one of `targets` ("" must be listed too).
        """

    async def sizes(self) -> dict[Lane, int]:
        """Requests in each lane."""

    async def ids(self) -> set[int]:
        """Blocks in any lane."""

    async def present(self, block_ids: Sequence[int]) -> set[int]:
        """Those of the given blocks that are in a lane."""

    async def scan(self, after: str, limit: int) -> tuple[list[BlockRef], str]:
        """Entries in steps of about `limit`; start with "" and pass the returned cursor until it is
        "" again. An entry that is in a lane during the whole scan is returned at least once."""

    async def targets(self) -> dict[str, int]:
        """Blocks of each target in all lanes; a target without any is absent."""

    async def remove(self, block_ids: Sequence[int]) -> int:
        """Remove blocks from their lanes; returns how many were there."""

    async def clear(self) -> None:
        """Delete everything, as a crash of the engine would."""


class Signals(Protocol):
    """Wake-ups and commands between centers. At most once: a signal may be lost."""

    async def publish(self, channel: str, payload: bytes) -> None:
        """Send to all current listeners."""

    def listen(self, *channels: str) -> AsyncIterator[tuple[str, bytes]]:
        """Signals that are published after the iteration has begun.

        It reconnects automatically, without a limit; signals sent meanwhile are lost.
        """


class LogStream(Protocol):
    """A bounded stream of log lines, oldest dropped first."""

    async def append(self, stream: str, lines: Sequence[Mapping[str, str]]) -> None:
        """Add lines in order."""

    async def read(
        self, stream: str, after: str = "0", limit: int = 100
    ) -> list[tuple[str, dict[str, str]]]:
        """(position, line) pairs after a position, oldest first."""


class Bus(Protocol):
    """The whole bus, opened by URL in `bus/registry.py`."""

    lanes: Lanes
    signals: Signals
    logs: LogStream

    async def open(self) -> None:
        """Connect. Raises BusDown."""

    async def close(self) -> None:
        """Disconnect."""

    async def ping(self) -> None:
        """Raises BusDown."""

    async def epoch(self) -> str:
        """Changes whenever the engine has lost its data, so that lanes are rebuilt."""

    async def lead(self, name: str, holder: str, seconds: float) -> bool:
        """True when `holder` has the lease called `name` for these seconds. It avoids duplicate
        work and is not a lock: correctness must never depend on it."""

    def describe(self) -> str:
        """The URL without its password, for display."""
