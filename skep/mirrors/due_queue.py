"""Orders the repositories of one host by due time, and spends the poll budget evenly. Pure.

One poll is free every 1/budget seconds. It goes to the repository that is due first; when none is
due, one that may come early is polled, so that no budget is lost in quiet hours. Polls that people
or webhooks ask for do not pass this queue. Due times are stored by the caller, so a restart causes
no burst.
"""

from __future__ import annotations

import heapq
import math

_Entry = tuple[float, float, int]
#: Seconds of unused budget that are kept for a process that wakes up late.
SAVED = 60.0


class DueQueue:
    """The due times of one host. `budget`: polls per second."""

    def __init__(self, budget: float, now: float) -> None:
        self._gap = 1 / budget
        self._free = now
        #: (time, other time, key), the smallest first; entries that were replaced stay until then.
        self._by_due: list[_Entry] = []
        self._by_early: list[_Entry] = []
        #: Due time and early time by key.
        self._times: dict[int, tuple[float, float]] = {}

    def __len__(self) -> int:
        return len(self._times)

    def put(self, key: int, due: float, early: float) -> None:
        """Set the due time of a repository. `early`: spare budget may be used for it from then."""
        self._times[key] = due, early
        heapq.heappush(self._by_due, (due, early, key))
        if early < due:
            heapq.heappush(self._by_early, (early, due, key))

    def remove(self, key: int) -> None:
        self._times.pop(key, None)

    def pause(self, until: float) -> None:
        """No poll of the host before this time."""
        self._free = max(self._free, until)

    def next_at(self) -> float:
        """When `take` returns the next repository; infinity if there is none."""
        due, early = self._first_times()
        return max(self._free, min(due, early))

    def take(self, now: float) -> int | None:
        """The repository to poll now, if any; it leaves the queue."""
        due, early = self._first_times()
        if max(self._free, min(due, early)) > now:
            return None
        _, _, key = heapq.heappop(self._by_due if due <= now else self._by_early)
        del self._times[key]
        self._free = max(self._free + self._gap, now - SAVED)
        return key

    def overdue(self, now: float) -> int:
        """How many repositories should have been polled before this time."""
        return sum(due < now for due, _ in self._times.values())

    def _first_times(self) -> tuple[float, float]:
        """The first due time and the first early time; infinity if there is none."""
        due_first, early_first, times = self._by_due, self._by_early, self._times
        while due_first and times.get(due_first[0][2]) != due_first[0][:2]:
            heapq.heappop(due_first)
        while early_first and times.get(early_first[0][2]) != early_first[0][1::-1]:
            heapq.heappop(early_first)
        due = due_first[0][0] if due_first else math.inf
        return due, early_first[0][0] if early_first else math.inf
