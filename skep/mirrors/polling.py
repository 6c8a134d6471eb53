"""Decides when a repository is polled next. Pure: time and randomness are arguments.

A poll is worth its price when the pushes that are expected since the last one have waited long
enough in total: a repository is due at the smallest T at which the integral of rate(s) * (T - s)
reaches the price. At a constant rate, T = sqrt(2 * price / rate). One price serves all repositories
of a host and follows in closed form from its budget. It must never be steered by feedback: a
controller that starts with a backlog overshoots.

    host = plan(states, now, budget, host)      # once an hour for each host; the first without host
    state = after_poll(state, pushes, now)      # after each poll; pushes: times of the new ones
    due = next_poll(state, now, host, chance)   # then; `DueQueue` keeps the due times
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate

import msgspec

from skep.mirrors.activity import (
    DAY,
    FLOOR,
    HOUR,
    HOURLY,
    HOURS,
    PRIOR,
    WEIGHTS,
    Activity,
    after_pushes,
    decayed,
    hour_of,
    hour_scale,
)
from skep.mirrors.poll_failures import Failure, after_failure, retry_delay
from skep.model.poll_failure import PollFailureKind

#: Bounds of the interval in seconds. A large host has a longer one, see `plan`.
SHORTEST, LONGEST = 60.0, DAY
#: The longest interval, in intervals of uniform polling.
LONGEST_ROUNDS = 3.0
#: Bounds of the interval of a repository whose webhook works: polls only find lost deliveries.
SAFETY_SHORTEST, SAFETY_LONGEST = 6 * HOUR, DAY
#: Part of the interval by which a due time varies, so that due times do not run in step.
JITTER = 0.05
#: Part of its interval after which a repository may use budget that no other needs.
EARLY_SHARE = 0.5
#: Share of a host's budget that failing repositories may use.
FAILURE_SHARE = 0.1


class PollState(msgspec.Struct, frozen=True, array_like=True):
    """What is stored for one repository."""

    activity: Activity = Activity()
    #: Time of the last poll, in seconds since the epoch.
    polled_at: float = 0.0
    failure: Failure | None = None
    #: How much the delay of a push matters, compared with other repositories.
    weight: float = 1.0
    #: Whether a working webhook reports the pushes.
    webhook: bool = False


class HostPlan(msgspec.Struct, frozen=True):
    """What a poll of this host costs, and the bounds of the intervals, in seconds."""

    #: Expected waiting time of pushes that is worth one poll.
    price: float
    shortest: float = SHORTEST
    longest: float = LONGEST
    #: The least interval of failing repositories.
    failure_spacing: float = 0.0


def next_poll(state: PollState, now: float, host: HostPlan, chance: float = 0.5) -> float:
    """The time of the next poll. `chance`: a random number in [0, 1) that spreads due times."""
    delay = _waiting(state.activity, now, host.price / state.weight, host.longest)
    delay = min(max(delay, host.shortest), host.longest)
    if state.webhook:
        delay = min(max(delay, SAFETY_SHORTEST), max(SAFETY_LONGEST, host.longest))
    delay *= 1 + JITTER * (2 * chance - 1)
    if state.failure is not None:
        spacing = host.failure_spacing * (1 + JITTER * chance)
        delay = retry_delay(state.failure, now, delay, spacing)
    return now + delay


def may_come_early(state: PollState, due: float, host: HostPlan) -> float:
    """The earliest time at which spare budget may be used for a repository that is due later."""
    if state.failure is not None or state.webhook:
        return due
    interval = due - state.polled_at
    return min(due, state.polled_at + max(EARLY_SHARE * interval, host.shortest))


def after_poll(state: PollState, pushes: Iterable[float], now: float) -> PollState:
    """The state after a poll that was answered. `pushes`: times of the new pushes, if any."""
    activity = after_pushes(state.activity, pushes, now)
    return PollState(activity, now, None, state.weight, state.webhook)


def after_failed_poll(
    state: PollState, kind: PollFailureKind, now: float, *, not_before: float = 0.0
) -> PollState:
    """The state after a poll that failed. `not_before`: the server asked to wait until then."""
    failure = after_failure(state.failure, kind, now, not_before=not_before)
    return PollState(state.activity, now, failure, state.weight, state.webhook)


def _waiting(activity: Activity, now: float, needed: float, longest: float) -> float:
    """Seconds until the expected waiting time of pushes reaches `needed`, hour by hour."""
    if needed <= 0:
        return 0.0
    first, second, third = decayed(activity, now)
    hours = activity.hours
    scale = hour_scale(hours) if hours else 1.0
    hour, piece = hour_of(now), HOUR - now % HOUR
    elapsed = waited = expected = 0.0
    while elapsed < longest:
        rate = FLOOR + WEIGHTS[0] * first + WEIGHTS[1] * second + WEIGHTS[2] * third
        if hours:
            rate *= scale * (hours[hour - 1] + hours[hour] + hours[hour + 1 - HOURS] + PRIOR)
        reached = waited + piece * (expected + rate * piece / 2)
        if reached >= needed:
            missing = needed - waited
            return elapsed + 2 * missing / (expected + math.sqrt(expected**2 + 2 * rate * missing))
        elapsed, waited, expected = elapsed + piece, reached, expected + rate * piece
        first, second, third = first * HOURLY[0], second * HOURLY[1], third * HOURLY[2]
        hour, piece = (hour + 1) % HOURS, HOUR
    return elapsed


def plan(
    states: Sequence[PollState], now: float, budget: float, before: HostPlan | None = None
) -> HostPlan:
    """The plan of a host for an hour. `budget`: polls per second; `before`: the last plan."""
    if not states:
        return HostPlan(0.0)
    longest = max(LONGEST, LONGEST_ROUNDS * len(states) / budget)
    failing = sum(state.failure is not None for state in states)
    spacing = failing / (FAILURE_SHARE * budget)
    polled = [state for state in states if state.failure is None and not state.webhook]
    covered = len(states) - failing - len(polled)
    left = budget - min(FAILURE_SHARE * budget, failing / HOUR)
    left = max(left - covered / SAFETY_LONGEST, budget / 2)
    price = _price(polled, now, left, (1 / longest, 1 / SHORTEST), before)
    return HostPlan(price, SHORTEST, longest, spacing)


def _price(
    states: Sequence[PollState],
    now: float,
    budget: float,
    bounds: tuple[float, float],
    before: HostPlan | None,
) -> float:
    """The price at which these states use the budget. The interval of a state is the inverse of its
    root times the pace; the hours to come change it, so it is computed once at a near price."""
    price = before.price if before is not None else 0.0
    if not price:
        roots = [_root(state, now) for state in states]
        price = _price_of(_pace(roots, budget, *bounds))
    scale, end = math.sqrt(2 * price), 4 / bounds[0]
    waits = (_waiting(one.activity, now, price / one.weight, end) for one in states)
    return _price_of(_pace([scale / wait for wait in waits], budget, *bounds))


def _root(state: PollState, now: float) -> float:
    activity = state.activity
    rate = activity.rate(now) * activity.hour_factor(hour_of(now))
    return math.sqrt(state.weight * rate)


def _price_of(pace: float) -> float:
    return 1 / (2 * pace * pace)


def _pace(roots: Sequence[float], budget: float, least: float, most: float) -> float:
    """The number x for which polls at the rates x * root, each between `least` and `most`, use the
    budget. Without the bounds, x = budget / sum(roots)."""
    ordered = sorted(roots)
    sums = [0.0, *accumulate(ordered)]
    low, high = 0.0, most / min(ordered, default=most)
    for _ in range(60):  # halving: as exact as a float
        pace = (low + high) / 2
        slow, fast = bisect_left(ordered, least / pace), bisect_left(ordered, most / pace)
        demand = slow * least + pace * (sums[fast] - sums[slow]) + (len(ordered) - fast) * most
        low, high = (pace, high) if demand < budget else (low, pace)
    return high
