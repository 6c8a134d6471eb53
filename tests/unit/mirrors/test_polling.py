"""When a repository is polled next."""

from __future__ import annotations

import math
from random import Random

import msgspec
import pytest

from skep.mirrors.activity import DAY, FLOOR, HOUR, Activity
from skep.mirrors.poll_failures import PROBES, end_state
from skep.mirrors.polling import (
    FAILURE_SHARE,
    JITTER,
    SAFETY_SHORTEST,
    SHORTEST,
    HostPlan,
    PollState,
    after_failed_poll,
    after_poll,
    may_come_early,
    next_poll,
    plan,
)

NOW = 20_000 * DAY


def with_pushes(*ages: float) -> PollState:
    return after_poll(PollState(), [NOW - age for age in ages], NOW)


def delay(state: PollState, host: HostPlan, now: float = NOW) -> float:
    return next_poll(state, now, host) - now


def test_without_pushes_the_delay_is_the_square_root_rule_at_the_floor() -> None:
    """M3: at a constant rate T = sqrt(2 * price / rate)."""
    host = HostPlan(price=FLOOR * (5 * HOUR) ** 2 / 2)
    assert delay(PollState(), host) == pytest.approx(5 * HOUR)


def test_four_times_the_weight_halves_the_delay() -> None:
    host = HostPlan(price=FLOOR * (6 * HOUR) ** 2 / 2)
    assert delay(PollState(weight=4.0), host) == pytest.approx(3 * HOUR)


def test_a_push_makes_the_next_poll_earlier_and_the_effect_fades() -> None:
    """M3: the interval follows the activity of the repository."""
    host = HostPlan(price=200.0)
    quiet, active = PollState(), with_pushes(60.0)
    waits = [delay(active, host, NOW + age) for age in (0.0, HOUR, 7 * DAY, 200 * DAY)]
    assert waits == sorted(waits)
    assert waits[0] < delay(quiet, host) / 10
    assert waits[-1] == pytest.approx(delay(quiet, host, NOW + 200 * DAY), rel=0.2)


def test_polls_come_before_the_hours_in_which_pushes_are_usual() -> None:
    """M3: pushes always at 10:00; the repository is polled more often then than at night."""
    pushes = [day * DAY + 10 * HOUR for day in range(1, 60)]
    state, host = with_pushes(*pushes), HostPlan(price=20.0)
    hour = NOW % DAY / HOUR
    usual = next(NOW + n * HOUR for n in range(24) if (hour + n - 14) % 24 == 0)
    assert delay(state, host, usual) < delay(state, host, usual + 12 * HOUR) / 2


@pytest.mark.parametrize("price", [0.0, 1e-9, 1.0, 1e12, math.inf])
def test_the_interval_stays_within_its_bounds(price: float) -> None:
    host = HostPlan(price, longest=2 * DAY)
    for state in (PollState(), with_pushes(1.0), with_pushes(*[1.0] * 5000)):
        for chance in (0.0, 0.999):
            wait = next_poll(state, NOW, host, chance) - NOW
            assert SHORTEST * (1 - JITTER) - 1e-6 <= wait <= 2 * DAY * (1 + JITTER)


def test_the_price_spends_the_budget() -> None:
    """M3: intervals at the price of the plan add up to the budget, from 0.1 to 10 polls an hour
    for each repository."""
    random = Random(1)
    states = [
        with_pushes(*[random.random() * 30 * DAY for _ in range(int(random.lognormvariate(0, 2)))])
        for _ in range(500)
    ]
    for per_hour in (50, 500, 5000):
        budget = per_hour / HOUR
        host = plan(states, NOW, budget)
        host = plan(states, NOW, budget, host)
        demand = sum(1 / delay(state, host) for state in states)
        assert demand == pytest.approx(budget, rel=0.03)


def test_no_repository_waits_longer_than_three_rounds_or_a_day() -> None:
    states = [PollState()] * 99 + [with_pushes(*range(1, 2000))]
    host = plan(states, NOW, 10 / HOUR)
    assert host.longest == 30 * HOUR
    assert max(delay(state, host) for state in states) <= 30 * HOUR


def test_a_budget_that_is_larger_than_any_demand_means_the_shortest_interval() -> None:
    host = plan([PollState()] * 3, NOW, 100.0)
    assert delay(PollState(), host) == pytest.approx(SHORTEST)


def test_an_empty_host_has_a_plan() -> None:
    assert plan([], NOW, 1.0).price == 0.0


def test_all_failing_repositories_together_stay_in_their_share_of_the_budget() -> None:
    """M7: broken repositories never starve the others."""
    good = [with_pushes(HOUR)] * 100
    bad = [after_failed_poll(PollState(), "transient", NOW)] * 5000
    budget = 500 / HOUR
    host = plan([*good, *bad], NOW, budget)
    assert 5000 / delay(bad[0], host) <= FAILURE_SHARE * budget * 1.0001
    assert 100 / delay(good[0], host) >= 0.85 * budget


def test_pauses_double_up_to_a_day_and_a_good_poll_ends_them() -> None:
    """M3, M7: retry with back-off."""
    state, host = PollState(), HostPlan(price=0.0)
    waits = []
    for _ in range(12):
        state = after_failed_poll(state, "transient", NOW)
        waits.append(delay(state, host))
    assert waits[:4] == [300.0, 600.0, 1200.0, 2400.0]
    assert waits[-1] == DAY
    assert delay(after_poll(state, [], NOW), host) == SHORTEST


def test_the_time_that_a_server_asked_for_wins() -> None:
    state = after_failed_poll(PollState(), "transient", NOW, not_before=NOW + 5 * DAY)
    assert next_poll(state, NOW, HostPlan(0.0)) == NOW + 5 * DAY


def test_a_repository_is_gone_after_three_answers_over_three_days_and_is_probed_monthly() -> None:
    """M7: a vanished upstream is noticed, and its return too."""
    state = PollState()
    for age in (0.0, DAY, 2 * DAY):
        state = after_failed_poll(state, "not_found", NOW + age)
    assert state.failure is not None
    assert end_state(state.failure, NOW + 2 * DAY) is None
    state = after_failed_poll(state, "not_found", NOW + 3 * DAY)
    assert state.failure is not None
    assert end_state(state.failure, NOW + 3 * DAY) == "not_found"
    assert delay(state, HostPlan(0.0), NOW + 3 * DAY) == PROBES["not_found"]


@pytest.mark.parametrize(("kind", "ended"), [("refused", "auth_failed"), ("too_large",) * 2])
def test_refusals_and_size_end_at_once(kind: str, ended: str) -> None:
    state = after_failed_poll(PollState(), kind, NOW)  # type: ignore[arg-type]  # a parameter
    assert state.failure is not None
    assert end_state(state.failure, NOW) == ended


def test_another_kind_of_failure_begins_a_new_count() -> None:
    state = after_failed_poll(PollState(), "not_found", NOW)
    state = after_failed_poll(state, "transient", NOW + 4 * DAY)
    state = after_failed_poll(state, "not_found", NOW + 5 * DAY)
    assert state.failure is not None
    assert (state.failure.count, state.failure.since) == (1, NOW + 5 * DAY)


def test_a_working_webhook_leaves_safety_polls_only() -> None:
    """M4: a lost webhook costs one safety poll."""
    state = with_pushes(*range(1, 500))
    covered = msgspec.structs.replace(state, webhook=True)
    assert delay(covered, HostPlan(price=1.0)) == SAFETY_SHORTEST
    due = NOW + SAFETY_SHORTEST
    assert may_come_early(covered, due, HostPlan(price=1.0)) == due


def test_the_state_is_small_and_survives_its_storage() -> None:
    """M3: state is persisted; a restart decides the same."""
    state = with_pushes(*[n * HOUR for n in range(1, 900)])
    state = after_failed_poll(state, "transient", NOW)
    stored = msgspec.msgpack.encode(state)
    assert len(stored) < 350
    again = msgspec.msgpack.decode(stored, type=PollState)
    assert again == state
    assert next_poll(again, NOW, HostPlan(9.0)) == next_poll(state, NOW, HostPlan(9.0))


def test_pushes_in_the_future_and_a_clock_that_went_back_do_no_harm() -> None:
    state = after_poll(PollState(), [NOW + 50 * DAY], NOW)
    assert state.activity.counts == (1.0, 1.0, 1.0)
    early = after_poll(state, [NOW - 2 * DAY], NOW - DAY)
    assert early.activity.at == NOW
    assert math.isfinite(next_poll(early, NOW - DAY, HostPlan(1.0)))


def test_old_habits_fade_from_the_histogram() -> None:
    state = after_poll(PollState(), [3 * HOUR] * 390, NOW)
    for _ in range(5):
        state = after_poll(state, [15 * HOUR] * 100, NOW)
    assert sum(state.activity.hours) <= 400
    assert state.activity.hour_factor(15) > state.activity.hour_factor(3)
    assert Activity().hour_factor(3) == 1.0
