"""Counts events of proxies and sessions, over all downloaders of an agent's process.

The threads of downloaders add, the agent's event loop reads; nothing here blocks for long.
"""

from __future__ import annotations

from threading import Lock

import msgspec


class Counts(msgspec.Struct, frozen=True):
    """The counts at one moment."""

    #: Changes of the proxy because of a pattern or a count.
    switches: int = 0
    #: Proxies that were paused because they did not work.
    rested: int = 0
    #: Sessions that were blocked and replaced.
    blocked: int = 0


class Tally:
    """Counters that only grow."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._counts = Counts()

    def add(self, *, switches: int = 0, rested: int = 0, blocked: int = 0) -> None:
        with self._lock:
            old = self._counts
            self._counts = Counts(
                old.switches + switches, old.rested + rested, old.blocked + blocked
            )

    @property
    def counts(self) -> Counts:
        return self._counts
