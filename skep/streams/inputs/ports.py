"""What a pipeline asks of an input.

Messages come in batches. A message that was read and not acknowledged comes back: to a reader that
opens the input again, or to another one after a time. So every message is seen at least once.
`testing/conformance/input` runs on every input.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec


class InputMessage(msgspec.Struct, frozen=True):
    """One message of an input."""

    #: Names the message in its input; equal when it comes back, where the input has such a name.
    position: str
    body: bytes
    #: How often it was delivered, as far as the input counts it.
    deliveries: int = 1


class Input(Protocol):
    """A source of messages."""

    async def open(self) -> None:
        """Connect; messages that this reader left unacknowledged come first.

        Raises ConfigurationError for what a retry cannot fix, Unavailable otherwise.
        """

    async def read(self, limit: int, wait: float) -> list[InputMessage]:
        """Up to `limit` messages, in order; waits up to `wait` seconds for the first one. A message
        is not returned again to this reader until it is opened again. Raises Unavailable."""

    async def acknowledge(self, positions: Sequence[str]) -> None:
        """These messages are processed; it is durable when this returns. Positions that are not
        open are ignored. Raises Unavailable: then the messages may come back."""

    async def close(self) -> None:
        """Disconnect. What was not acknowledged comes back."""

    def describe(self) -> str:
        """The place without its password, for display."""


class Positions(Protocol):
    """Where an input that cannot store its own position keeps it."""

    async def load(self) -> Mapping[str, int]:
        """Name -> position; empty at first."""

    async def save(self, positions: Mapping[str, int]) -> None:
        """Durable when this returns."""
