"""Which of the runs that agents remember are over. Run by centers.

Agents name their runs with each heartbeat. The answer is what this center knows by then, and
the names are looked up together, in the background, for the next heartbeat: no heartbeat waits
for the store, however many agents there are.
"""

from __future__ import annotations

from collections.abc import Iterable

from skep.store.ports.runs import Runs

#: Names that one look-up asks the store about.
LOOK_LIMIT = 2000
#: Names that are known to be over; the oldest are looked up again.
KEPT = 20_000


class EndedRuns:
    """Names that agents have asked about, and those of them that are over."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self._asked: dict[str, None] = {}
        self._over: dict[str, None] = {}

    def ended_in(self, names: Iterable[str]) -> list[str]:
        """Those that are known to be over; the others are looked up by the next `look`."""
        found = []
        for name in names:
            self._asked[name] = None
            if name in self._over:
                found.append(name)
        return found

    async def look(self) -> None:
        """Ask the store about names that agents still remember."""
        names = list(self._asked)[:LOOK_LIMIT]
        if not names:
            return
        over = set(await self._runs.over(names))
        for name in names:
            self._asked.pop(name, None)
            self._over.pop(name, None)
            if name in over:
                self._over[name] = None
        while len(self._over) > KEPT:
            del self._over[next(iter(self._over))]
