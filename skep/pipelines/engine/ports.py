"""What the engine asks of the outside: stores, queries and outputs. Each call is for a batch.

An error of a call is a SkepError: every message of the call fails with it and is tried again.
Tests use doubles; the worker connects Redis, SQL, HTTP and sinks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec


class Found(msgspec.Struct, frozen=True):
    """The answer of a query."""

    value: Any


class Delay(msgspec.Struct, frozen=True):
    """The answer is not there yet: ask again after `seconds`; 0 = as the retry rules say."""

    seconds: float = 0.0
    #: Seconds after which the message is dead; 0 = as the retry rules say.
    expires: float = 0.0


class Abandon(msgspec.Struct, frozen=True):
    """The message has no use: drop it."""

    reason: str


class Failed(msgspec.Struct, frozen=True):
    """The query failed for these arguments."""

    reason: str


Answer = Found | Delay | Abandon | Failed


class OutputRecord(msgspec.Struct, frozen=True):
    """What one output gets of one message."""

    values: dict[str, Any]
    #: The same for every repetition of the message; "" = the output has no key.
    key: str = ""
    #: Seconds that a field is kept; fields without an entry are kept without limit.
    ttl: dict[str, float] = msgspec.field(default_factory=dict)


class Refusal(msgspec.Struct, frozen=True):
    """Why an output did not accept a record."""

    reason: str
    #: No retry can help: the record is not valid for this output.
    permanent: bool = False


class Stores(Protocol):
    """Look-ups by key."""

    async def get(self, store: str, keys: Sequence[str]) -> Mapping[str, Any]:
        """The values of those keys that exist, in one round trip."""

    async def put(self, store: str, entries: Mapping[str, str], ttl: float) -> None:
        """Store entries; `ttl` in seconds, 0 = without limit."""


class Queries(Protocol):
    """Queries that fill extras."""

    async def ask(self, kind: str, name: str, asked: Sequence[dict[str, Any]]) -> Sequence[Answer]:
        """One answer per set of arguments. `kind` is `server`, `method` or `func`."""


class Outputs(Protocol):
    """Where messages go."""

    async def write(self, target: str, records: Sequence[OutputRecord]) -> Sequence[Refusal | None]:
        """Write records durably; None for each that was accepted. A record that the output cannot
        hold, such as an integer that is too large, gets a permanent refusal."""
