"""A message as it arrives, and as it moves through the stages of one batch."""

from __future__ import annotations

from typing import Any

import msgspec

from skep.pipelines.engine.outcomes import Outcome


class Arrived(msgspec.Struct, frozen=True):
    """A message from an input or from the pool."""

    body: bytes
    #: The name of its input.
    input: str
    #: From the pool: errors so far, how often it was taken out, and its expiry (0 = never).
    errors: int = 0
    tries: int = 0
    expires: float = 0.0
    #: From the pool: outputs that have accepted it.
    done: tuple[str, ...] = ()


class InFlow:
    """A message between its arrival and its outcome. `outcome` is set once."""

    __slots__ = ("arrived", "done", "fields", "outcome")

    def __init__(self, arrived: Arrived) -> None:
        self.arrived = arrived
        self.fields: dict[str, Any] = {}
        self.outcome: Outcome | None = None
        #: Outputs that have accepted it, now or before.
        self.done: list[str] = list(arrived.done)
