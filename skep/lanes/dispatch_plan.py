"""Plans what a dispatch takes from each job: jobs take turns, lanes have limits. Pure.

One *round* takes at most the share of each job, best lane first. The dispatcher works
continuously, so it plans several rounds at a time, until the room of the lanes, the backlog or
the limit is used up. A round that found too little room continues with the next dispatch
(`Shares`), so that jobs share a lane by their numbers however little room each dispatch finds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from skep.lanes.lane_order import STRICT
from skep.model.lane import Lane, lane_of
from skep.store.ports.requests import Backlog, PackPlan

_Key = tuple[str, int]


class Shares:
    """What each job has got in the current round of each lane."""

    def __init__(self) -> None:
        self._spent: dict[Lane, Counter[str]] = {lane: Counter() for lane in Lane}

    def left(self, entry: Backlog) -> int:
        """The rest of the job's share in this round of the lane."""
        return entry.dispatch - self._spent[lane_of(entry.priority)][_owner(entry)]

    def spend(self, entry: Backlog, count: int) -> None:
        self._spent[lane_of(entry.priority)][_owner(entry)] += count

    def renew(self, waiting: Sequence[Backlog]) -> None:
        """Start a lane's next round when every job that waits for it has got its share."""
        for lane in Lane:
            mine = [entry for entry in waiting if lane_of(entry.priority) is lane]
            if mine and all(self.left(entry) <= 0 for entry in mine):
                self._spent[lane].clear()


def plan_dispatch(
    backlog: Sequence[Backlog],
    room: Mapping[Lane, int],
    limit: int,
    turn: int,
    *,
    rounds: int | None = None,
    first: Lane | None = None,
    begun: Shares | None = None,
) -> list[PackPlan]:
    """At most `limit` requests, and no more than a lane has room for.

    In a lane another run begins at each `turn`. `first` names a lane that comes before the
    better ones this time. Without `rounds` there are as many as there is room for. `begun` is
    the unfinished round of the dispatch before; it is continued and changed.
    """
    order = STRICT if first is None else (first, *(lane for lane in STRICT if lane != first))
    waiting = [entry for lane in order for entry in _round_robin(backlog, lane, turn)]
    left = {lane: room.get(lane, 0) for lane in Lane}
    grants: Counter[_Key] = Counter()
    by_round: list[Counter[_Key]] = []
    shares = _shares(backlog)
    lanes = begun or Shares()
    while waiting and limit > 0 and (rounds is None or rounds > 0):
        waiting = [entry for entry in waiting if _may_get_more(entry, left, grants)]
        lanes.renew(waiting)
        given = _round(waiting, left, limit, grants, shares, lanes)
        limit -= sum(given.values())
        by_round.append(given)
        waiting = [entry for entry in waiting if _may_get_more(entry, left, grants)]
        # Runs of one job share its number: those that got nothing come first now.
        waiting.sort(key=lambda entry: (order.index(lane_of(entry.priority)), given[_key(entry)]))
        rounds = None if rounds is None else rounds - 1
    return [
        _plan(entry, grants[_key(entry)], [given[_key(entry)] for given in by_round])
        for lane in order
        for entry in _round_robin(backlog, lane, turn)
        if grants[_key(entry)]
    ]


def _round_robin(backlog: Sequence[Backlog], lane: Lane, turn: int) -> list[Backlog]:
    mine = [entry for entry in backlog if lane_of(entry.priority) is lane]
    start = turn % len(mine) if mine else 0
    return [*mine[start:], *mine[:start]]


def _shares(backlog: Sequence[Backlog]) -> dict[_Key, int]:
    """The most that one round takes from each entry. Priorities of a run that is ordered by host
    alone share its number equally; otherwise the better one can take all of it."""
    siblings = Counter(entry.run for entry in backlog)
    return {
        _key(entry): (
            max(1, entry.dispatch // siblings[entry.run])
            if entry.order == "host"
            else entry.dispatch
        )
        for entry in backlog
    }


def _round(
    waiting: list[Backlog],
    left: dict[Lane, int],
    limit: int,
    grants: Counter[_Key],
    shares: Mapping[_Key, int],
    lanes: Shares,
) -> Counter[_Key]:
    """Give each job its share once; returns what each entry got."""
    spent: Counter[str] = Counter()
    given: Counter[_Key] = Counter()
    for entry in waiting:
        key, lane, owner = _key(entry), lane_of(entry.priority), _owner(entry)
        share = min(shares[key], entry.dispatch - spent[owner], lanes.left(entry))
        grant = max(min(share, entry.waiting - grants[key], left[lane], limit), 0)
        given[key] = grant
        grants[key] += grant
        spent[owner] += grant
        lanes.spend(entry, grant)
        left[lane] -= grant
        limit -= grant
    return given


def _may_get_more(entry: Backlog, left: Mapping[Lane, int], grants: Counter[_Key]) -> bool:
    return left[lane_of(entry.priority)] > 0 and grants[_key(entry)] < entry.waiting


def _key(entry: Backlog) -> _Key:
    return entry.run, entry.priority


def _owner(entry: Backlog) -> str:
    """The job, or run, whose share counts."""
    return entry.job or entry.run


def _plan(entry: Backlog, grant: int, by_round: Sequence[int]) -> PackPlan:
    size, order = entry.block_size, entry.order
    rounds = tuple(by_round) if len(by_round) > 1 else ()
    return PackPlan(entry.run, entry.priority, grant, size, order, entry.failed_only, rounds)


def blocked(
    backlog: Sequence[Backlog], room: Mapping[Lane, int], plans: Sequence[PackPlan] = ()
) -> list[tuple[str, Lane]]:
    """(run, lane) pairs that get nothing because the lane is full, now or after these plans."""
    left = dict(room)
    for plan in plans:
        left[lane_of(plan.priority)] -= plan.limit
    served = {(plan.run, lane_of(plan.priority)) for plan in plans}
    lanes = {(entry.run, lane_of(entry.priority)) for entry in backlog}
    return sorted((run, lane) for run, lane in lanes - served if left.get(lane, 0) <= 0)
