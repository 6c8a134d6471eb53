"""Order and share: which lane comes first, who gets the room. Pure."""

from __future__ import annotations

from collections import Counter, deque

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.lanes.ageing import Ages
from skep.lanes.dispatch_plan import Shares, blocked, plan_dispatch
from skep.lanes.lane_order import STRICT, floor_lane
from skep.model.block import BlockRef
from skep.model.dispatch import DispatchOrder
from skep.model.lane import Lane, lane_of
from skep.store.ports.requests import Backlog, PackPlan


@given(every=st.integers(4, 200), start=st.integers(0, 10_000))
def test_every_lower_lane_has_one_turn_in_a_round(every: int, start: int) -> None:
    """Fault 36: over any stretch of `every` leases, exactly one turn each."""
    turns = Counter(floor_lane(tick, every) for tick in range(start, start + every))
    assert turns[Lane.HIGH] == turns[Lane.MID] == turns[Lane.LOW] == 1
    assert turns[None] == every - 3
    assert Lane.SUPER not in turns


@pytest.mark.parametrize("every", [4, 5, 20, 100])
def test_a_flood_of_super_starves_no_lane_and_still_comes_first(every: int) -> None:
    """Fault 36: with every lane always full, each waits at most `every` leases for a block of its
    own, and super keeps all the rest."""
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


#: Runs of the same job share its number, which may be odd.
OWNERS = {"a": "one", "b": "one", "c": "two", "d": "two", "e": "e", "f": "f"}
NUMBERS = {"one": 100, "two": 7, "e": 1, "f": 1000}


def owned(entry: Backlog) -> Backlog:
    job = OWNERS[entry.run]
    order: DispatchOrder = "host" if entry.run in "bde" else "priority"
    return msgspec.structs.replace(entry, job=job, dispatch=NUMBERS[job], order=order)


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
).map(lambda entries: [owned(entry) for entry in entries])
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
def test_no_room_is_left_while_a_request_waits(
    backlog: list[Backlog], room: dict[Lane, int], limit: int, turn: int
) -> None:
    """D4: what is left undone is left because room, limit or requests are used up."""
    plans = plan_dispatch(backlog, room, limit, turn)
    spent = sum(plan.limit for plan in plans)
    for lane in Lane:
        mine = [entry for entry in backlog if lane_of(entry.priority) is lane]
        taken = sum(plan.limit for plan in plans if lane_of(plan.priority) is lane)
        everything = sum(entry.waiting for entry in mine)
        assert taken == everything or taken == max(room[lane], 0) or spent == limit


@given(
    runs=st.integers(2, 8),
    number=st.integers(1, 100),
    room=st.integers(1, 2000),
    turn=st.integers(0, 20),
)
def test_turns_are_fair_within_one_share(runs: int, number: int, room: int, turn: int) -> None:
    """D4: runs that wait alike differ by one job's number at most."""
    backlog = [Backlog(f"r{n}", 5, 10_000, 100, dispatch=number) for n in range(runs)]
    plans = plan_dispatch(backlog, {Lane.LOW: room}, 7000, turn)
    got = {plan.run: plan.limit for plan in plans}
    shares = [got.get(f"r{n}", 0) for n in range(runs)]
    assert max(shares) - min(shares) <= number
    assert sum(shares) == min(room, 7000)


@given(backlogs, rooms, st.integers(1, 7000), st.integers(0, 100))
def test_one_round_takes_no_more_than_its_number_from_a_job(
    backlog: list[Backlog], room: dict[Lane, int], limit: int, turn: int
) -> None:
    """D4: at most the job's own number for each job, over all its runs and priorities."""
    plans = plan_dispatch(backlog, room, limit, turn, rounds=1)
    taken: Counter[str] = Counter()
    for plan in plans:
        taken[OWNERS[plan.run]] += plan.limit
    numbers = {entry.job: entry.dispatch for entry in backlog}
    assert all(taken[job] <= numbers[job] for job in taken)


@given(backlogs, rooms, st.integers(1, 7000), st.integers(0, 100), st.integers(1, 20))
def test_several_rounds_at_once_give_what_single_rounds_would_give_in_all(
    backlog: list[Backlog], room: dict[Lane, int], limit: int, turn: int, rounds: int
) -> None:
    """D4: planning ahead takes no more than its rounds may, and rounds only add."""
    before: dict[tuple[str, int], int] = {}
    for count in (rounds, rounds + 1, None):
        plans = plan_dispatch(backlog, room, limit, turn, rounds=count)
        now = {(plan.run, plan.priority): plan.limit for plan in plans}
        assert all(now.get(key, 0) >= taken for key, taken in before.items())
        before = now
        if count is not None:
            taken: Counter[str] = Counter()
            for plan in plans:
                taken[OWNERS[plan.run]] += plan.limit
            numbers = {entry.job: entry.dispatch for entry in backlog}
            assert all(taken[job] <= count * numbers[job] for job in taken)


def test_runs_of_one_job_share_its_number_and_take_turns() -> None:
    """D4: two runs of a job get what one run of it would get, half each."""
    twins = [Backlog(f"r{n}", 5, 9000, 100, job="twins") for n in range(2)]
    alone = Backlog("alone", 5, 9000, 100, job="other")
    plans = plan_dispatch([*twins, alone], {Lane.LOW: 4000}, 7000, 0)
    assert {plan.run: plan.limit for plan in plans} == {"r0": 1000, "r1": 1000, "alone": 2000}
    (first, second) = plan_dispatch([*twins, alone], {Lane.LOW: 4000}, 7000, 0, rounds=1)
    assert (first.limit, second.run, second.limit) == (100, "alone", 100)


def test_by_priority_the_better_one_takes_the_number_by_host_they_share_it() -> None:
    """D4: ordered by priority or by both, 0 comes before 1; by host they count alike."""
    cases: dict[DispatchOrder, list[int]] = {"priority": [100], "both": [100], "host": [50, 50]}
    for order, expected in cases.items():
        backlog = [Backlog("r", priority, 9000, 100, "j", 100, order) for priority in (0, 1)]
        plans = plan_dispatch(backlog, {Lane.HIGH: 1000}, 7000, 0, rounds=1)
        assert [plan.limit for plan in plans] == expected
        assert {plan.order for plan in plans} == {order}


def test_another_run_begins_at_each_turn() -> None:
    """Fault 72: when there is room for one block only, it goes round."""
    backlog = [Backlog(f"r{n}", 5, 1000, 100) for n in range(3)]
    winners: deque[str] = deque()
    for turn in range(6):
        (plan,) = plan_dispatch(backlog, {Lane.LOW: 100}, 7000, turn)
        winners.append(plan.run)
    assert Counter(winners) == {"r0": 2, "r1": 2, "r2": 2}


def test_better_lanes_use_the_limit_first_and_leave_the_others_their_turn() -> None:
    """D2, D4: in each round super comes before low, and low gets its turn."""
    backlog = [Backlog("low", 5, 9000, 100), Backlog("super", -1, 9000, 100)]
    room = dict.fromkeys(Lane, 10_000)
    assert plan_dispatch(backlog, room, 150, 0) == [
        PackPlan("super", -1, 100, 100),
        PackPlan("low", 5, 50, 100),
    ]
    (only,) = plan_dispatch(backlog, room, 100, 0)
    assert only.run == "super"
    (only,) = plan_dispatch(backlog, room, 100, 0, first=Lane.LOW)
    assert only.run == "low"


def test_who_is_blocked_is_named_once() -> None:
    """D3: a run with two priorities in a full lane is one alert."""
    backlog = [Backlog("a", 4, 1, 1), Backlog("a", 5, 1, 1), Backlog("b", 0, 1, 1)]
    assert blocked(backlog, {Lane.LOW: 0, Lane.HIGH: 1}) == [("a", Lane.LOW)]
    assert blocked(backlog, {Lane.LOW: -5}) == [("a", Lane.LOW), ("b", Lane.HIGH)]


def test_who_finds_the_lane_filled_by_others_is_blocked_too() -> None:
    """D3: also when it was filled in this very dispatch."""
    backlog = [Backlog("a", 5, 1000, 100), Backlog("b", 5, 1000, 100)]
    room = {Lane.LOW: 100}
    plans = plan_dispatch(backlog, room, 7000, 0)
    assert [plan.run for plan in plans] == ["a"]
    assert blocked(backlog, room, plans) == [("b", Lane.LOW)]


def test_a_block_at_the_tail_for_too_long_goes_to_the_head() -> None:
    """Fault 36: a flood of priority 4 does not keep 5 at the tail without end."""
    ages = Ages(60.0)
    behind, ahead = BlockRef(1, "r", 5, 10), BlockRef(2, "r", 4, 10)
    assert not behind.at_head
    assert ages.too_old([behind, ahead], 0.0) == []
    assert ages.too_old([behind, ahead], 59.0) == []
    (old,) = ages.too_old([behind, ahead], 60.0)
    assert old.id == 1
    assert old.at_head
    assert ages.too_old([behind], 119.0) == []
    assert ages.too_old([], 120.0) == []
    assert ages.too_old([behind], 130.0) == []


@pytest.mark.parametrize("room", [1, 3, 7, 25, 100, 450])
def test_jobs_share_a_lane_by_their_numbers_however_small_the_room_is(room: int) -> None:
    """E10, D4: a round that finds too little room goes on with the next dispatch."""
    numbers = {"one": 10, "two": 20, "five": 50}
    backlog = [Backlog(run, 5, 10**6, 10, dispatch=number) for run, number in numbers.items()]
    begun, got = Shares(), Counter[str]()
    for turn in range(40 * 80 // room + 1):
        for plan in plan_dispatch(backlog, {Lane.LOW: room}, 7000, turn, begun=begun):
            got[plan.run] += plan.limit
    for run, number in numbers.items():
        assert abs(got[run] - sum(got.values()) * number / 80) <= number + room


def test_a_busy_better_lane_does_not_disturb_the_shares_of_another() -> None:
    """E10, D4: each lane has its own round."""
    backlog = [Backlog("super", -1, 10**6, 10, dispatch=100)]
    backlog += [Backlog(run, 5, 10**6, 10, dispatch=n) for run, n in (("one", 10), ("three", 30))]
    begun, got = Shares(), Counter[str]()
    for turn in range(400):
        room = {Lane.SUPER: 150, Lane.LOW: 4}
        for plan in plan_dispatch(backlog, room, 7000, turn, begun=begun):
            got[plan.run] += plan.limit
    assert got["super"] == 150 * 400
    assert abs(got["three"] - 3 * got["one"]) <= 40


def test_each_round_of_a_plan_holds_the_number() -> None:
    """E10, D4: what one dispatch takes in several rounds, round by round."""
    backlog = [
        Backlog("r", 4, 250, 10),
        Backlog("r", 5, 500, 10),
        Backlog("s", 5, 120, 9, dispatch=40),
    ]
    plans = plan_dispatch(backlog, {Lane.LOW: 10_000}, 7000, 0)
    assert {(plan.run, plan.priority): sum(plan.rounds) for plan in plans} == {
        ("r", 4): 250,
        ("r", 5): 500,
        ("s", 5): 120,
    }
    of_r = zip(*(plan.rounds for plan in plans if plan.run == "r"), strict=True)
    assert all(sum(both) <= 100 for both in of_r)
    assert all(count <= 40 for plan in plans if plan.run == "s" for count in plan.rounds)
