"""Messages in the pool: those that failed or must wait, and dead ones. Pure data.

A waiting message is claimed under a lease and a token. Every message that was ever put is waiting,
dead, done or discarded; `PoolLedger` counts them.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

import msgspec


class PoolState(StrEnum):
    """`waiting`: comes back to its pipeline when it is due. `dead`: waits for a person."""

    WAITING = "waiting"
    DEAD = "dead"


class NewPooled(msgspec.Struct, frozen=True):
    """A message for the pool."""

    #: Where it came from, such as input, partition and offset: the same origin is stored once.
    origin: str
    input: str
    body: bytes
    state: PoolState = PoolState.WAITING
    #: When it comes back, and after which time it is dead (0 = never), in seconds since 1970.
    due: float = 0.0
    expires: float = 0.0
    errors: int = 0
    #: Outputs that have accepted it.
    done: tuple[str, ...] = ()
    stage: str = ""
    reason: str = ""


class Pooled(msgspec.Struct, frozen=True):
    """A message in the pool."""

    id: int
    pipeline: str
    origin: str
    input: str
    body: bytes
    state: PoolState
    due: float
    expires: float
    errors: int
    #: How often it was claimed.
    tries: int
    done: tuple[str, ...]
    stage: str
    reason: str
    put_at: float
    #: Grows with each claim; a claim that was lost cannot settle the message.
    token: int


class Settled(msgspec.Struct, frozen=True):
    """What became of a claimed message."""

    id: int
    token: int
    #: `done`: it leaves the pool. `again`: it waits until `due`. `dead`: it waits for a person.
    what: Literal["done", "again", "dead"]
    due: float = 0.0
    expires: float = 0.0
    errors: int = 0
    done: tuple[str, ...] = ()
    stage: str = ""
    reason: str = ""


class PoolLedger(msgspec.Struct, frozen=True):
    """Counts of one pipeline, or of all."""

    put: int = 0
    waiting: int = 0
    dead: int = 0
    done: int = 0
    discarded: int = 0

    @property
    def unaccounted(self) -> int:
        """Messages in no state; always 0."""
        return self.put - self.waiting - self.dead - self.done - self.discarded
