"""Who takes a request: one small class per strategy, for the agents of one moment. Pure.

Each answers `Placing` of `store/ports/placement.py`; the store asks while it packs blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from skep.model.fleet.placement import Key
from skep.placement.hash_keys import key_of
from skep.placement.hash_ring import Ring
from skep.store.ports.placement import Wanted


class Shared:
    """any and fixed: whoever of the run's agents asks first."""

    by_session = False
    chained = False

    def __init__(self, target: str) -> None:
        self._target = target

    def target(self, wanted: Wanted) -> str | None:  # noqa: ARG002 - all are alike
        return self._target


class Hashed:
    """Each key has its agent."""

    chained = False

    def __init__(self, ring: Ring, key: Key) -> None:
        self._ring = ring
        self._key = key
        self.by_session = key == "session"

    def target(self, wanted: Wanted) -> str | None:
        return self._ring.owner(key_of(wanted, self._key)) or None


class Chained:
    """Back to the agent that found it; what was found by nobody, to a random one.

    A request whose agent is not there is held back (C6): what becomes of it is decided by
    the run's policy, not here.
    """

    by_session = False
    chained = True

    def __init__(self, present: Sequence[str], rng: Random) -> None:
        self._present = list(present)
        self._rng = rng

    def target(self, wanted: Wanted) -> str | None:
        if wanted.place is None:
            return self._rng.choice(self._present) if self._present else None
        return wanted.place if wanted.place in self._present else None
