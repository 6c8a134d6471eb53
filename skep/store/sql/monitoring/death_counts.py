"""Counts requests that die, and dead ones that are retried or deleted, per failure group.

Run by centers only, inside the transaction that changes the requests. The counts of all callers
are added with COMMIT, like the other running counts.
"""

from __future__ import annotations

from skep.store.sql.engine.running_counts import Sums
from skep.store.sql.schema.monitoring import failure_groups

_COLUMNS = ("fault", "host", "died", "gone", "first_at", "last_at", "fresh")


class DeathCounts:
    """Deaths and departures, by fingerprint and host, until the transaction ends."""

    __slots__ = ("_died", "_gone")

    def __init__(self) -> None:
        self._died: dict[tuple[int, str], tuple[int, float]] = {}
        self._gone: dict[tuple[int, str], int] = {}

    def died(self, fault: int, host: str, count: int, now: float) -> None:
        known, at = self._died.get((fault, host), (0, now))
        self._died[fault, host] = (known + count, max(at, now))

    def gone(self, fault: int, host: str, count: int) -> None:
        self._gone[fault, host] = self._gone.get((fault, host), 0) + count

    def update(self, other: DeathCounts) -> None:
        """Add the counts of another caller."""
        for (fault, host), (count, at) in other._died.items():
            self.died(fault, host, count, at)
        for (fault, host), count in other._gone.items():
            self.gone(fault, host, count)

    def sums(self) -> list[Sums]:
        """Sorted, so that two centers take the row locks in the same order."""
        died = [(*key, n, 0, at, at, 1) for key, (n, at) in sorted(self._died.items())]
        gone = [(*key, n, n, 0.0, 0.0, 0) for key, n in sorted(self._gone.items())]
        return [
            Sums(failure_groups, _COLUMNS, 2, ("died",), died, sets=("last_at", "fresh")),
            # A group that was dropped meanwhile is created anew, with nothing dead in it.
            Sums(failure_groups, _COLUMNS, 2, ("gone",), gone),
        ]
