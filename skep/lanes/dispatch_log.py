"""The dispatch log: what was dispatched, round by round. Run by centers.

A round of a job that found too little room continues with the next dispatch. So rows about the
same run, lane and reason are summed up for some seconds, up to the size of a round; rows are
written together. A crash loses those of some seconds and nothing else: the requests themselves
are in the store.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf

import msgspec

from skep.errors import Unavailable
from skep.model.dispatch import DispatchRow
from skep.runtime.clock import Clock
from skep.store.ports import Store

#: Seconds over which rows are summed up.
WRITE_EVERY = 30.0
#: Maximum sums in memory; then they are written at once.
SUMS_LIMIT = 5000
#: Maximum rows that one call of `forget` deletes.
FORGET_LIMIT = 10_000
#: Maximum rows that are kept, whatever their age.
ROWS_KEPT = 1_000_000

_Sum = tuple[str, str, str, str]


class DispatchLog:
    """Sums up rows, writes them, deletes old ones."""

    def __init__(self, store: Store, clock: Clock, kept: float) -> None:
        self._store = store
        self._clock = clock
        self._kept = kept
        self._sums: dict[_Sum, DispatchRow] = {}
        #: Rounds that are complete.
        self._full: list[DispatchRow] = []
        self._written = float("-inf")

    def note(self, rows: Iterable[DispatchRow], numbers: Mapping[str, int] | None = None) -> None:
        """Remember what happened; nothing is written yet. `numbers`: the most that one round takes
        from a run, and so the most of one row."""
        most = numbers or {}
        for row in rows:
            key = (row.kind, row.run, row.lane, row.reason)
            known = self._sums.get(key)
            if known is not None and known.size + row.size > most.get(row.run, inf):
                self._full.append(known)
                known = None
            self._sums[key] = row if known is None else _added(known, row)

    async def write_if_due(self) -> None:
        """Write sums that are old enough, or too many, to the store."""
        if not self._sums:
            return
        waited = self._clock.monotonic() - self._written
        if waited >= WRITE_EVERY or len(self._sums) + len(self._full) >= SUMS_LIMIT:
            await self.write()

    async def write(self) -> None:
        """Write all sums; those that cannot be written now are kept for later."""
        rows, self._full, self._sums = [*self._full, *self._sums.values()], [], {}
        self._written = self._clock.monotonic()
        try:
            await self._store.dispatches.add(rows)
        except Unavailable:
            self._full = [*rows, *self._full][:SUMS_LIMIT]
            raise

    async def forget(self) -> None:
        """Delete rows that are too old."""
        oldest = self._clock.now() - self._kept
        while await self._store.dispatches.forget(oldest, FORGET_LIMIT, ROWS_KEPT) == FORGET_LIMIT:
            pass


def _added(known: DispatchRow, row: DispatchRow) -> DispatchRow:
    return msgspec.structs.replace(
        known,
        at=row.at,
        size=known.size + row.size,
        blocks=known.blocks + row.blocks,
        rounds=known.rounds + row.rounds,
        seconds=known.seconds + row.seconds,
    )
