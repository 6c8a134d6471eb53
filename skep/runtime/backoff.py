"""How long to wait before a retry: exponential, capped, with full jitter.

Pure; used by centers (retries of requests) and agents (calls to a center). The jitter
spreads the retries of agents that failed at the same time.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random


@dataclass(frozen=True, slots=True)
class Backoff:
    """A random part of `first * factor ** (attempt - 1)`, at most `cap`."""

    first: float = 1.0
    cap: float = 30.0
    factor: float = 2.0
    floor: float = 0.5

    def delay(self, attempt: int, rng: Random) -> float:
        """Seconds before attempt number `attempt + 1`; attempts count from 1."""
        exponent = min(max(attempt, 1) - 1, 62)
        ceiling = min(self.cap, self.first * self.factor**exponent)
        return ceiling * (self.floor + (1 - self.floor) * rng.random())
