"""Order and share: which lane comes first, who gets the room. Pure."""

from __future__ import annotations

from collections import Counter, deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.lanes.order import STRICT, floor_lane
from skep.lanes.plan import blocked, plan_dispatch
from skep.model.lane import Lane, lane_of
from skep.store.facts import Backlog, PackPlan


@given(every=st.integers(4, 200), start=st.integers(0, 10_000))
def test_every_lower_lane_has_one_turn_in_a_round(every: int, start: int) -> None:
    """Fault 36: over any stretch of `every` leases, exactly one turn each."""
    turns = Counter(floor_lane(tick, every) for tick in range(start, start + every))
    assert turns[Lane.HIGH] == turns[Lane.MID] == turns[Lane.LOW] == 1
    assert turns[None] == every - 3
    assert Lane.SUPER not in turns


@pytest.mark.parametrize("every", [4, 5, 20, 100])
def test_a_flood_of_super_starves_nobody_and_still_comes_first(every: int) -> None:
    """Fault 36: with every lane full for ever, each waits at most `every` leases for a
    block of its own, and super keeps all the rest."""
    got: Counter[Lane] = Counter()
    waited: Counter[Lane] = Counter()
    longest: Counter[Lane] = Counter()
    rounds = 50
    for tick in range(every * rounds):
        lane = floor_lane(tick, every) or STRICT[0]
        got[lane] += 1
        for other in Lane:
            waited[other] = 0 if other is lane else waited[other] + 1
            longest[other] = max(longest[other], waited[other])
    assert got[Lane.HIGH] == got[Lane.MID] == got[Lane.LOW] == rounds
    assert got[Lane.SUPER] == rounds * (every - 3)
    assert max(longest.values()) < every


def test_without_floors_the_order_is_strict() -> None:
    """D2: super, high, mid, low."""
    assert list(STRICT) == sorted(Lane)


backlogs = st.lists(
    st.builds(
        Backlog,
        run=st.sampled_from("abcdef"),
        priority=st.integers(-1, 5),
        waiting=st.integers(0, 5000),
        block_size=st.integers(1, 300),
    ),
    max_size=15,
    unique_by=lambda entry: (entry.run, entry.priority),
)
rooms = st.fixed_dictionaries({lane: st.integers(-50, 3000) for lane in Lane})


@given(backlogs, rooms, st.integers(1, 7000), st.integers(0, 100))
def test_a_dispatch_keeps_every_bound(
    backlog: list[Backlog], room: dict[Lane, int], limit: int, turn: int
) -> None:
    """D3, D4: never more than the room of a lane, the limit of a dispatch, the backlog."""
    plans = plan_dispatch(backlog, room, limit, turn)
    assert sum(plan.limit for plan in plans) <= limit
    for lane in Lane:
        taken = sum(plan.limit for plan in plans if lane_of(plan.priority) is lane)
        assert taken <= max(room[lane], 0)
    waiting = {(entry.run, entry.priority): entry for entry in backlog}
    assert len({(plan.run, plan.priority) for plan in plans}) == len(plans)
    for plan in plans:
        entry = waiting[plan.run, plan.priority]
        assert 0 < plan.limit <= entry.waiting
        assert plan.block_size == entry.block_size


@given(backlogs, rooms, st.integers(1, 7000), st.integers(0, 100))
def test_no_room_is_left_while_somebody_waits(
    backlog: list[Backlog], room: dict[Lane, int], limit: int, turn: int
) -> None:
    """D4: what is left undone is left for want of room, limit or requests."""
    plans = plan_dispatch(backlog, room, limit, turn)
    spent = sum(plan.limit for plan in plans)
    for lane in Lane:
        mine = [entry for entry in backlog if lane_of(entry.priority) is lane]
        taken = sum(plan.limit for plan in plans if lane_of(plan.priority) is lane)
        everything = sum(entry.waiting for entry in mine)
        assert taken == everything or taken == max(room[lane], 0) or spent == limit


@given(
    runs=st.integers(2, 8),
    block=st.integers(1, 100),
    room=st.integers(1, 2000),
    turn=st.integers(0, 20),
)
def test_turns_are_fair_within_one_block(runs: int, block: int, room: int, turn: int) -> None:
    """D4: runs that wait alike differ by one block at most."""
    backlog = [Backlog(f"r{n}", 5, 10_000, block) for n in range(runs)]
    plans = plan_dispatch(backlog, {Lane.LOW: room}, 7000, turn)
    got = {plan.run: plan.limit for plan in plans}
    shares = [got.get(f"r{n}", 0) for n in range(runs)]
    assert max(shares) - min(shares) <= block
    assert sum(shares) == min(room, 7000)


def test_another_run_begins_at_each_turn() -> None:
    """Fault 72: when there is room for one block only, it goes round."""
    backlog = [Backlog(f"r{n}", 5, 1000, 100) for n in range(3)]
    winners: deque[str] = deque()
    for turn in range(6):
        (plan,) = plan_dispatch(backlog, {Lane.LOW: 100}, 7000, turn)
        winners.append(plan.run)
    assert Counter(winners) == {"r0": 2, "r1": 2, "r2": 2}


def test_better_lanes_use_the_limit_first() -> None:
    """D2, D4: 7,000 in one dispatch, super before low."""
    backlog = [Backlog("low", 5, 9000, 100), Backlog("super", -1, 9000, 100)]
    room = dict.fromkeys(Lane, 10_000)
    assert plan_dispatch(backlog, room, 9500, 0) == [
        PackPlan("super", -1, 9000, 100),
        PackPlan("low", 5, 500, 100),
    ]


def test_who_is_blocked_is_named_once() -> None:
    """D3: a run with two priorities in a full lane is one alert."""
    backlog = [Backlog("a", 4, 1, 1), Backlog("a", 5, 1, 1), Backlog("b", 0, 1, 1)]
    assert blocked(backlog, {Lane.LOW: 0, Lane.HIGH: 1}) == [("a", Lane.LOW)]
    assert blocked(backlog, {Lane.LOW: -5}) == [("a", Lane.LOW), ("b", Lane.HIGH)]
