"""What one dispatch takes from whom: runs take turns, lanes have limits. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from skep.model.lane import Lane, lane_of
from skep.store.facts import Backlog, PackPlan


def plan_dispatch(
    backlog: Sequence[Backlog], room: Mapping[Lane, int], limit: int, turn: int
) -> list[PackPlan]:
    """Share the room of each lane between the runs that wait for it, at most `limit` in all.

    In a lane every run gets one block per round, beginning with another run at each
    `turn`, until the room or the backlog is used up.
    """
    plans: list[PackPlan] = []
    for lane in Lane:
        waiting = [entry for entry in backlog if lane_of(entry.priority) is lane]
        taken = _share(waiting, min(room.get(lane, 0), limit), turn)
        plans += taken
        limit -= sum(plan.limit for plan in taken)
    return plans


def _share(waiting: Sequence[Backlog], room: int, turn: int) -> list[PackPlan]:
    start = turn % len(waiting) if waiting else 0
    ordered = [*waiting[start:], *waiting[:start]]
    grants = [0] * len(ordered)
    moved = True
    while room > 0 and moved:
        moved = False
        for index, entry in enumerate(ordered):
            grant = min(entry.block_size, entry.waiting - grants[index], room)
            if grant > 0:
                grants[index] += grant
                room -= grant
                moved = True
    return [
        PackPlan(entry.run, entry.priority, grant, entry.block_size)
        for entry, grant in zip(ordered, grants, strict=True)
        if grant
    ]


def blocked(backlog: Sequence[Backlog], room: Mapping[Lane, int]) -> list[tuple[str, Lane]]:
    """(run, lane) pairs that wait because the lane is full."""
    lanes = ((entry.run, lane_of(entry.priority)) for entry in backlog)
    return sorted({(run, lane) for run, lane in lanes if room.get(lane, 0) <= 0})
