"""Counts differences that a process found between two of its records, and repaired. Each
center has one.

Only repairs are counted: work in flight looks like a difference for a moment and is
not one. `on_repair` passes every count on, for example to a metric.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable

log = logging.getLogger(__name__)


class Repairs:
    """Counts by kind: repaired since the start, and open (seen once, or not repairable yet)."""

    def __init__(self, on_repair: Callable[[str, int], None] | None = None) -> None:
        self._on_repair = on_repair
        self.done: Counter[str] = Counter()
        self.open: dict[str, int] = {}
        #: The latest repair, by kind.
        self.last: dict[str, str] = {}

    def repaired(self, kind: str, count: int, what: str) -> None:
        """Count and log a repair; does nothing for zero differences."""
        if count < 1:
            return
        self.done[kind] += count
        self.last[kind] = what
        log.warning("repaired %d differences (%s): %s", count, kind, what)
        if self._on_repair is not None:
            self._on_repair(kind, count)

    def seen(self, kind: str, count: int) -> None:
        """Sets the open differences of the latest check."""
        self.open[kind] = count
