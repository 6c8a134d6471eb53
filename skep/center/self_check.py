"""The self-check: each center compares records that belong together, and repairs them.

Run by centers, in the background. One step checks a limited number of rows of each kind. What
two consecutive steps find is a difference; what only one finds was unfinished work. The store
checks again when it repairs, so a center that was suspended never repairs from outdated data.
`lanes/reconcile_lanes.py` compares the lanes, more often.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import get_args

from skep.center.archive_check import ArchiveCheck
from skep.runtime.clock import Clock
from skep.runtime.repair_counts import Repairs
from skep.store.ports import Store
from skep.store.ports.self_checks import StoreCheck

#: Number of rows of each kind that one step checks.
STEP_LIMIT = 1000
#: Minimum seconds between two checks: normal work of centers takes less.
APART = 3.0
#: Number of differences that one log line names.
NAMED = 5
KINDS: tuple[StoreCheck, ...] = get_args(StoreCheck)


class SelfCheck:
    """Walks over the tables for one center. `withdraw` removes ended runs from the lanes before
    their allocations are closed."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        repairs: Repairs,
        withdraw: Callable[[list[str]], Awaitable[None]],
        limit: int = STEP_LIMIT,
        archive: ArchiveCheck | None = None,
        apart: float = APART,
    ) -> None:
        self._store = store
        self._clock = clock
        self._repairs = repairs
        self._withdraw = withdraw
        self._limit = limit
        self._archive = archive
        self._apart = apart
        self._after: dict[StoreCheck, str] = dict.fromkeys(KINDS, "")
        self._seen: dict[StoreCheck, list[str]] = {kind: [] for kind in KINDS}
        self._seen_at: dict[StoreCheck, float] = {}

    async def step(self) -> None:
        """Repair the differences of the last step that still exist; check the next rows."""
        for kind in KINDS:
            if not self._too_soon(kind):
                await self._repair(kind)
                await self._look(kind)
        if self._archive is not None:
            await self._archive.step()

    def _too_soon(self, kind: StoreCheck) -> bool:
        since = self._clock.monotonic() - self._seen_at.get(kind, 0.0)
        return bool(self._seen[kind]) and since < self._apart

    async def _look(self, kind: StoreCheck) -> None:
        after = self._after[kind]
        found, self._after[kind] = await self._store.checks.find(kind, after, self._limit)
        self._seen[kind], self._seen_at[kind] = found, self._clock.monotonic()
        self._repairs.seen(kind, len(found))

    async def _repair(self, kind: StoreCheck) -> None:
        seen = self._seen[kind]
        if not seen:
            return
        if kind == "allocations":
            await self._withdraw(seen)
        done = await self._store.checks.repair(kind, seen, self._clock.now())
        named = ", ".join(done[:NAMED]) + (", ..." if len(done) > NAMED else "")
        self._repairs.repaired(kind, len(done), f"{kind} {named}")
