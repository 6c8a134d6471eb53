"""Consistent hashing: which agent has a key, so that one that comes or goes moves only its
share. Pure.

Every agent stands at many points of a ring (virtual nodes); a key belongs to the first
point at or after its own. Where an agent stands depends on its id alone, so every center
has the same ring.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from struct import unpack

#: Points of one agent: the largest share is then within some percent of the mean.
POINTS = 1024
#: One digest of 64 bytes gives so many points of 8 bytes.
_POINTS_PER_DIGEST = 8


class Ring:
    """The agents of one moment."""

    def __init__(self, agents: Iterable[str], points: int = POINTS) -> None:
        self.agents = tuple(sorted(set(agents)))
        placed = sorted(
            (point, agent) for agent in self.agents for point in points_of(agent, points)
        )
        self._points = [point for point, _ in placed]
        self._owners = [agent for _, agent in placed]

    def owner(self, key: str) -> str:
        """The agent that has a key; "" when there is nobody."""
        if not self._points:
            return ""
        place = bisect_left(self._points, _hash(key))
        return self._owners[place % len(self._owners)]

    def shares(self, keys: Iterable[str]) -> Counter[str]:
        """How many of these keys each agent has; agents without any count 0."""
        shares = Counter(dict.fromkeys(self.agents, 0))
        shares.update(self.owner(key) for key in keys)
        return shares


def points_of(agent: str, count: int) -> Sequence[int]:
    """Where an agent stands."""
    points: list[int] = []
    for number in range(-(-count // _POINTS_PER_DIGEST)):
        digest = blake2b(f"{agent}\0{number}".encode()).digest()
        points += unpack(">8Q", digest)
    return points[:count]


def _hash(key: str) -> int:
    return int.from_bytes(blake2b(key.encode(), digest_size=8).digest(), "big")


def imbalance(shares: Counter[str]) -> float:
    """The largest share over the mean; 1 is perfect."""
    mean = shares.total() / len(shares) if shares else 0.0
    return max(shares.values()) / mean if mean else 1.0


def moved(before: Ring, after: Ring, keys: Iterable[str]) -> Counter[tuple[str, str]]:
    """(from, to) -> keys that change hands."""
    pairs = ((before.owner(key), after.owner(key)) for key in keys)
    return Counter(pair for pair in pairs if pair[0] != pair[1])
