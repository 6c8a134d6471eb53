"""Compares the lanes with the store, in both directions and in bounded steps. Centers only.

Lanes contain exactly the claimable blocks of running runs that fit. A block can be in transit for
a moment: popped and not leased yet, or packed and not pushed yet. So only what two consecutive
checks find is a difference. The store is read again right before an entry is removed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from math import inf
from typing import NamedTuple

from skep.bus.ports import Lanes
from skep.model.block import BlockRef
from skep.store.ports.blocks import Blocks

#: Maximum entries or rows of one step.
STEP_LIMIT = 5000
#: Maximum entries of one call to the bus during the search for a run's entries.
SCAN_LIMIT = 1000


class LanePage(NamedTuple):
    """Claimable blocks of one step: those in lanes, those to push, and the range of their ids."""

    present: list[BlockRef]
    due: list[BlockRef]
    #: Those of `due` for which no reason is known.
    unexplained: frozenset[int]
    after: int
    until: float


class LaneReconciler:
    """One center's scan of lanes and claimable blocks."""

    def __init__(self, blocks: Blocks, lanes: Lanes, limit: int = STEP_LIMIT) -> None:
        self._blocks = blocks
        self._lanes = lanes
        self._limit = limit
        self._cursor = ""
        self._after = 0
        #: The next check is the second one of the same page.
        self._again = False
        #: Entries that were not claimable in the store at the last check.
        self.surplus: set[int] = set()
        #: Claimable blocks that were in no lane when their page was checked last.
        self.missing: set[int] = set()
        #: Blocks that are out of the lanes for a reason known to this center: refused by a full
        #: lane, or popped and not leased.
        self._outside: set[int] = set()

    def left_out(self, block_ids: Iterable[int]) -> None:
        """These are claimable and in no lane, which is correct for now."""
        self._outside.update(block_ids)

    async def remove_surplus(self) -> list[int]:
        """Remove entries that two checks did not find claimable; check the next entries. Returns
        the blocks whose entries were removed."""
        removed = await self._remove(await self.not_claimable(self.surplus))
        refs, self._cursor = await self._lanes.scan(self._cursor, self._limit)
        self.surplus = await self.not_claimable({ref.id for ref in refs})
        return removed

    async def _remove(self, block_ids: Collection[int]) -> list[int]:
        there = await self._lanes.present(sorted(block_ids))
        await self._lanes.remove(sorted(there))
        # This center may have been frozen since the store answered. A block that is claimable
        # again meanwhile is not a difference: the next page puts it back.
        gone = await self.not_claimable(there)
        self.missing |= there - gone
        self._outside |= there - gone
        return sorted(gone)

    async def not_claimable(self, block_ids: Collection[int]) -> set[int]:
        """Those that are not claimable in the store."""
        return set(block_ids) - await self._blocks.still_claimable(sorted(block_ids))

    async def next_page(self, *, at_once: bool) -> LanePage:
        """The next claimable blocks. `at_once`: start with the oldest, and every block that is in
        no lane is due; otherwise those that were missing at the last check too."""
        after = 0 if at_once else self._after
        ready = await self._blocks.claimable(self._limit, after)
        more = len(ready) == self._limit
        until = ready[-1].id if more else inf
        there = await self._lanes.present([ref.id for ref in ready])
        absent = {ref.id for ref in ready} - there
        due = absent if at_once else absent & self.missing
        self.missing = {one for one in self.missing if not after < one <= until} | absent - due
        self._move_on(after, ready[-1].id if more else 0, again=bool(absent) and not at_once)
        explained = due if at_once else due & self._outside
        waiting = self._outside & (absent - due)
        self._outside = {one for one in self._outside if not after < one <= until} | waiting
        return LanePage(
            [ref for ref in ready if ref.id in there],
            [ref for ref in ready if ref.id in due],
            frozenset(due - explained),
            after,
            until,
        )

    def _move_on(self, after: int, following: int, *, again: bool) -> None:
        """A page with missing blocks is checked twice, so that no more than a page is remembered.
        With a single page every check is the second one of the check before."""
        self._again = again and not self._again
        if self._again:
            self._after = after
            return
        self._after = following
        if after or following:
            self.missing.clear()


async def remove_runs(lanes: Lanes, run_ids: Collection[str]) -> int:
    """Remove every entry of these runs; returns how many there were."""
    wanted = set(run_ids)
    return await _remove_all(lanes, lambda ref: ref.run in wanted)


async def remove_targets(lanes: Lanes, targets: Collection[str]) -> int:
    """Remove every entry for these targets; returns how many there were."""
    wanted = set(targets)
    return await _remove_all(lanes, lambda ref: ref.target in wanted)


async def _remove_all(lanes: Lanes, unwanted: Callable[[BlockRef], bool]) -> int:
    refs, cursor = await lanes.scan("", SCAN_LIMIT)
    removed = await lanes.remove([ref.id for ref in refs if unwanted(ref)])
    while cursor:
        refs, cursor = await lanes.scan(cursor, SCAN_LIMIT)
        removed += await lanes.remove([ref.id for ref in refs if unwanted(ref)])
    return removed
