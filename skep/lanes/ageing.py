"""Blocks that stood in a lane for too long. Pure; each center keeps its own count.

In a lane the even priority enters at the head, so a flood of it would keep the odd one at
the tail for ever. A block that was seen there for too long enters again, at the head.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import msgspec

from skep.model.block import BlockRef


class Ages:
    """Since when blocks at the tails of lanes have been seen there."""

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._since: dict[int, float] = {}

    def too_old(
        self, refs: Sequence[BlockRef], now: float, after: int = 0, until: float = inf
    ) -> list[BlockRef]:
        """Those of `refs` (all blocks in lanes with ids over `after` and up to `until`) whose
        time has come, oldest first, as they are to enter again. They begin anew with it."""
        behind = [ref for ref in refs if ref.priority > 0 and not ref.at_head]
        # Of this span only those that are still there, so that this never grows.
        others = {one: at for one, at in self._since.items() if not after < one <= until}
        self._since = others | {ref.id: self._since.get(ref.id, now) for ref in behind}
        old = [ref for ref in behind if now - self._since[ref.id] >= self._limit]
        self._since |= {ref.id: now for ref in old}
        return [msgspec.structs.replace(ref, aged=True) for ref in old]
