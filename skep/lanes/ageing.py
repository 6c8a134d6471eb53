"""Finds blocks that have waited in a lane for too long. Pure; each center has its own count.

In a lane even priorities enter at the head, so a flood of them would starve odd priorities at
the tail. A block that was seen there for too long enters again, at the head.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import msgspec

from skep.model.block import BlockRef


class Ages:
    """When blocks at the tails of lanes were first seen there."""

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._since: dict[int, float] = {}

    def too_old(
        self, refs: Sequence[BlockRef], now: float, after: int = 0, until: float = inf
    ) -> list[BlockRef]:
        """Those of `refs` (all blocks in lanes with ids over `after` and up to `until`) that have
        waited too long, oldest first, as they enter again. Their time starts anew."""
        behind = [ref for ref in refs if ref.priority > 0 and not ref.at_head]
        # Keep only those of this span that are still there, so that this never grows.
        others = {one: at for one, at in self._since.items() if not after < one <= until}
        self._since = others | {ref.id: self._since.get(ref.id, now) for ref in behind}
        old = [ref for ref in behind if now - self._since[ref.id] >= self._limit]
        self._since |= {ref.id: now for ref in old}
        return [msgspec.structs.replace(ref, aged=True) for ref in old]
