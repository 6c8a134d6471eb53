"""The order of lanes. Pure.

Strict order would starve `low` as long as there is better work, so a few leases in every round
start with one block of a lower lane: its minimum share.
"""

from __future__ import annotations

from skep.model.lane import Lane

STRICT: tuple[Lane, ...] = tuple(Lane)


def floor_lane(tick: int, every: int) -> Lane | None:
    """The lane that comes first out of order at this tick, if any."""
    place = tick % every
    turns = {every // 4: Lane.HIGH, every // 2: Lane.MID, every - 1: Lane.LOW}
    return turns.get(place)
