"""The four lanes, and the lane of each of the seven priorities (-1 to 5). Pure.

Centers and tests use it. `lanes/lane_order.py` decides which lane is emptied first.
"""

from __future__ import annotations

from enum import IntEnum


class Lane(IntEnum):
    """Bounded, ordered queues of blocks; a lower number is drained first."""

    SUPER = 0
    HIGH = 1
    MID = 2
    LOW = 3

    @property
    def label(self) -> str:
        return self.name.lower()


HIGHEST, LOWEST = -1, 5


def lane_of(priority: int) -> Lane:
    """super (-1), high (0, 1), mid (2, 3), low (4, 5)."""
    if priority < 0:
        return Lane.SUPER
    return Lane(min(priority, LOWEST) // 2 + 1)


def enters_at_head(priority: int) -> bool:
    """In a lane, even priorities enter at the head and odd ones at the tail."""
    return priority >= 0 and priority % 2 == 0
