"""What a run or a pipeline asks of a sink.

Records come in batches, in the order of their positions. `write` returns when the batch is
durable at the other end. A sink that can keep its position together with the data (a file,
a SQL database) stores each record exactly once, whatever is killed; the others are told
the same record again after a crash and make it harmless by its key, where there is one.
`testing/conformance/sink` runs on every sink.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec


class Record(msgspec.Struct, frozen=True):
    """One item or message. `position` grows; nothing else says which came first."""

    position: int
    data: dict[str, Any]


class Refused(msgspec.Struct, frozen=True):
    """A record that this sink can never take, and why: it becomes a dead letter."""

    position: int
    reason: str


class Sink(Protocol):
    """Takes records. Opened by URL in `streams/registry.py`."""

    async def open(self) -> int:
        """Connect; returns the last position that is stored, 0 when unknown or none.

        Raises ConfigurationError for what will not get better, Unavailable otherwise.
        """

    async def write(self, records: Sequence[Record]) -> list[Refused]:
        """Store a batch; raises Unavailable (nothing of it, or an unknown part, is stored:
        the caller tells it again). Returns those that were refused for what they are.

        When one is refused the others are not stored either: the caller buries it first and
        then tells the rest again. In the other order a crash in between would lose it.
        Any other error means that the batch is bad, and not which record of it: the caller
        tells it again in halves. Only ConfigurationError is about no record at all.
        """

    async def close(self) -> None:
        """Flush and let go."""

    def describe(self) -> str:
        """The place without its password, for people."""
