"""Which lane comes first. Pure.

Strict order alone would starve `low` for as long as anything better is there, so a few
leases in every round begin with one block of a lower lane: its floor share.
"""

from __future__ import annotations

from skep.model.lane import Lane

STRICT: tuple[Lane, ...] = (Lane.SUPER, Lane.HIGH, Lane.MID, Lane.LOW)


def floor_lane(tick: int, every: int) -> Lane | None:
    """The lane whose turn it is out of order at this tick, if any."""
    place = tick % every
    turns = {every // 4: Lane.HIGH, every // 2: Lane.MID, every - 1: Lane.LOW}
    return turns.get(place)
