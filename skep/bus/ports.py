"""What centers ask of a bus. Everything in it can be rebuilt from the store.

A method raises `BusDown` when the engine does not answer; nothing durable depends on it.
Blocks may be offered twice or vanish: `Blocks.lease` of the store decides, the lanes only
say in which order to try. `testing/conformance/bus/suite.py` runs on every backend.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Protocol

from skep.model.block import BlockRef
from skep.model.lane import Lane


class Lanes(Protocol):
    """Bounded, ordered queues of blocks, counted in requests."""

    async def push(self, refs: Sequence[BlockRef]) -> list[BlockRef]:
        """Put blocks at head or tail of their lanes; a block that is there already stays.

        Returns those that did not fit: a lane takes a block only while its requests plus
        the block's do not exceed its limit (an empty lane takes any block).
        """

    async def pop(
        self, order: Sequence[Lane], targets: Sequence[str], limit: int
    ) -> list[BlockRef]:
        """Take up to `limit` blocks, going through the lanes in `order`, from their heads.

        Only blocks whose `target` is one of `targets` ("" must be named too) are taken.
        """

    async def sizes(self) -> dict[Lane, int]:
        """Requests in each lane."""

    async def ids(self) -> set[int]:
        """Blocks in any lane."""

    async def present(self, block_ids: Sequence[int]) -> set[int]:
        """Those of the given blocks that are in a lane."""

    async def scan(self, after: str, limit: int) -> tuple[list[BlockRef], str]:
        """Entries in steps of about `limit`; begin with "" and pass the returned cursor on
        until it is "" again. An entry that is in a lane during the whole walk is returned at
        least once."""

    async def targets(self) -> dict[str, int]:
        """Blocks of each target in all lanes; a target without any is absent."""

    async def remove(self, block_ids: Sequence[int]) -> int:
        """Take blocks out wherever they are; returns how many were there."""

    async def clear(self) -> None:
        """Forget everything, as a crash of the engine would."""


class Signals(Protocol):
    """Wake-ups and commands between centers. At most once: a signal may be lost."""

    async def publish(self, channel: str, payload: bytes) -> None:
        """To everybody who listens now."""

    def listen(self, *channels: str) -> AsyncIterator[tuple[str, bytes]]:
        """What is published from the moment that the iteration has begun.

        It reconnects by itself for ever; while it is away, signals are lost.
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
    """Everything, opened by URL in `bus/registry.py`."""

    lanes: Lanes
    signals: Signals
    logs: LogStream

    async def open(self) -> None:
        """Connect. Raises BusDown."""

    async def close(self) -> None:
        """Let go."""

    async def ping(self) -> None:
        """Raises BusDown."""

    async def epoch(self) -> str:
        """Changes whenever the engine has lost its memory, so that lanes are rebuilt."""

    async def lead(self, name: str, holder: str, seconds: float) -> bool:
        """True when `holder` has the turn called `name` for some seconds. A hint to avoid
        doing work twice, not a lock: correctness never rests on it."""

    def describe(self) -> str:
        """The URL without its password, for people."""
