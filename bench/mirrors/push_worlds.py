"""Generated pushes of repositories, for `polling`. Pure: the seed decides everything.

Rates are log-normal. In the Poisson world pushes are independent. In the bursty world a repository
has active and idle days, working hours in its own time zone, quiet weekends, and sessions of
several pushes; its long-run rate is the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from statistics import NormalDist

HOUR = 3600.0
DAY = 24 * HOUR
#: Pushes per day of the middle repository, and the width of the distribution.
MEDIAN, SIGMA = 0.05, 2.3
#: Bursty: pushes of a session, seconds between them, share of active days, weekend factor.
SESSION, GAP, ACTIVE, WEEKEND = 3.0, 1200.0, 0.4, 0.25
#: Chance that a day does not continue the day before it.
CHANGE = 0.3
WEEK = (5 + 2 * WEEKEND) / 7
WORK_BEGINS, WORK_HOURS = 9, 10

#: (pushes per day, randomness, from, to) -> times of pushes, ascending.
World = Callable[[float, Random, float, float], list[float]]


def rates(count: int, random: Random) -> list[float]:
    """Pushes per day, at evenly spaced quantiles, in random order: no luck in the few busiest."""
    normal = NormalDist()
    found = [
        MEDIAN * math.exp(SIGMA * normal.inv_cdf((number + 0.5) / count)) for number in range(count)
    ]
    random.shuffle(found)
    return found


def poisson(rate: float, random: Random, begin: float, end: float) -> list[float]:
    times: list[float] = []
    time = begin + random.expovariate(rate / DAY)
    while time < end:
        times.append(time)
        time += random.expovariate(rate / DAY)
    return times


def bursty(rate: float, random: Random, begin: float, end: float) -> list[float]:
    zone = random.choice((-8, -6, -5, 0, 0, 1, 1, 2, 8)) * HOUR
    sessions = rate / SESSION / ACTIVE / WEEK
    active, times = random.random() < ACTIVE, list[float]()
    for number in range(int((end - begin) / DAY)):
        day = begin + number * DAY
        if random.random() < CHANGE:
            active = random.random() < ACTIVE
        if active:
            quiet = WEEKEND if int(day // DAY) % 7 in {2, 3} else 1.0  # the epoch was a Thursday
            for start in poisson(sessions * quiet, random, 0.0, DAY):
                work = day + zone + (WORK_BEGINS + WORK_HOURS * start / DAY) * HOUR
                times += _session(work, random)
    return sorted(time for time in times if begin <= time < end)


def _session(time: float, random: Random) -> list[float]:
    times = [time]
    while random.random() >= 1 / SESSION:
        time += random.expovariate(1 / GAP)
        times.append(time)
    return times


WORLDS: dict[str, World] = {"poisson": poisson, "bursty": bursty}
