"""A simple model of the lanes as plain lists, to compare every backend with.

Only tests use it. It must stay so simple that it is obviously correct.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from skep.model.block import BlockRef
from skep.model.lane import Lane


class ModelLanes:
    """The contract of `Lanes`."""

    def __init__(self, limits: Mapping[Lane, int]) -> None:
        self._limits = limits
        self._lanes: dict[Lane, list[BlockRef]] = {lane: [] for lane in Lane}

    def push(self, refs: Sequence[BlockRef]) -> list[BlockRef]:
        return [ref for ref in refs if ref.id not in self.ids() and not self._fits(ref)]

    def _fits(self, ref: BlockRef) -> bool:
        lane = self._lanes[ref.lane]
        if lane and self.sizes()[ref.lane] + ref.size > self._limits[ref.lane]:
            return False
        lane.insert(0 if ref.at_head else len(lane), ref)
        return True

    def pop(self, order: Sequence[Lane], targets: Sequence[str], limit: int) -> list[BlockRef]:
        allowed = [ref for lane in order for ref in self._lanes[lane] if ref.target in targets]
        self.remove([ref.id for ref in allowed[:limit]])
        return allowed[:limit]

    def remove(self, block_ids: Sequence[int]) -> int:
        before = len(self.ids())
        for lane, refs in self._lanes.items():
            self._lanes[lane] = [ref for ref in refs if ref.id not in block_ids]
        return before - len(self.ids())

    def sizes(self) -> dict[Lane, int]:
        return {lane: sum(ref.size for ref in refs) for lane, refs in self._lanes.items()}

    def ids(self) -> set[int]:
        return {ref.id for refs in self._lanes.values() for ref in refs}

    def clear(self) -> None:
        self._lanes = {lane: [] for lane in Lane}
