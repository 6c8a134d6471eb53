"""Which of the runs that agents remember have ended. Run by centers.

Agents name their runs with each heartbeat. The answer is what this center knows at that time;
the other names are looked up together, in the background, for the next heartbeat. A heartbeat
never waits for the store, whatever the number of agents.
"""

from __future__ import annotations

from collections.abc import Iterable

from skep.store.ports.runs import Runs

#: Number of names in one query to the store.
LOOK_LIMIT = 2000
#: Number of ended runs that are remembered; older ones are looked up again.
KEPT = 20_000


class EndedRuns:
    """Names that agents have sent, and those of them that have ended."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self._asked: dict[str, None] = {}
        self._over: dict[str, None] = {}

    def ended_in(self, names: Iterable[str]) -> list[str]:
        """Those that are known to have ended; the next `look` looks up the others."""
        found = []
        for name in names:
            self._asked[name] = None
            if name in self._over:
                found.append(name)
        return found

    async def look(self) -> None:
        """Ask the store about the names that agents have sent."""
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
