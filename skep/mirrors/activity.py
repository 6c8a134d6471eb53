"""The push activity of one repository: how often pushes come, and at which hours. Pure.

A push makes another push likely for an hour, a day and some weeks: the rate is a sum of counts that
decay at these three speeds, above a floor. A histogram of the hours of day refines it. The state is
a few numbers, so that it can be stored with the repository; it never holds push times.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

HOUR = 3600.0
DAY = 24 * HOUR
#: Seconds in which each count decays to 1/e.
DECAYS = (HOUR, DAY, 20 * DAY)
#: Share of each count in the rate, per second.
WEIGHTS = (0.25 / DECAYS[0], 0.35 / DECAYS[1], 0.40 / DECAYS[2])
#: Pushes per second that every repository is expected to have: one in 60 days.
FLOOR = 1 / (60 * DAY)
#: Factor by which a count decays in one hour.
HOURLY = tuple(math.exp(-HOUR / decay) for decay in DECAYS)
HOURS = 24
#: Pushes in the histogram; beyond it, all entries are halved, so that new habits count.
REMEMBERED = 400.0
#: Pushes that every hour is taken to have had, with its two neighbours: little evidence changes
#: little.
PRIOR = 2.0


class Activity(msgspec.Struct, frozen=True, array_like=True):
    """What is known about the pushes of one repository."""

    #: Time to which the counts are decayed, in seconds since the epoch.
    at: float = 0.0
    #: Pushes within about an hour, a day and 20 days.
    counts: tuple[float, float, float] = (0.0, 0.0, 0.0)
    #: Pushes by hour of day in UTC; empty before the first push.
    hours: tuple[float, ...] = ()

    def rate(self, now: float) -> float:
        """Expected pushes per second, without the hour of day."""
        first, second, third = decayed(self, now)
        return FLOOR + WEIGHTS[0] * first + WEIGHTS[1] * second + WEIGHTS[2] * third

    def hour_factor(self, hour: int) -> float:
        """How much more often than on average pushes come in this hour and its neighbours."""
        hours = self.hours
        if not hours:
            return 1.0
        near = hours[hour - 1] + hours[hour] + hours[(hour + 1) % HOURS]
        return (near + PRIOR) * hour_scale(hours)


def hour_scale(hours: tuple[float, ...]) -> float:
    """Factor that makes the mean over all hours 1."""
    return HOURS / (3 * sum(hours) + HOURS * PRIOR)


def decayed(activity: Activity, now: float) -> tuple[float, float, float]:
    """The counts at a time; a clock that went back changes nothing."""
    past = activity.at - now
    first, second, third = activity.counts
    if past >= 0 or not third:
        return activity.counts
    return (
        first * math.exp(past / DECAYS[0]),
        second * math.exp(past / DECAYS[1]),
        third * math.exp(past / DECAYS[2]),
    )


def after_pushes(activity: Activity, pushes: Iterable[float], now: float) -> Activity:
    """The activity when pushes at these times became known. Times in the future count as now."""
    times = [min(time, now) for time in pushes]
    if not times:
        return activity
    counts = decayed(activity, now)
    fresh = [sum(math.exp((time - now) / decay) for time in times) for decay in DECAYS]
    first, second, third = (old + new for old, new in zip(counts, fresh, strict=True))
    hours = _histogram(activity.hours, times)
    return Activity(max(now, activity.at), (first, second, third), hours)


def _histogram(hours: tuple[float, ...], times: list[float]) -> tuple[float, ...]:
    entries = list(hours) if len(hours) == HOURS else [0.0] * HOURS
    for time in times:
        entries[hour_of(time)] += 1
    while sum(entries) > REMEMBERED:
        entries = [entry / 2 for entry in entries]
    return tuple(entries)


def hour_of(time: float) -> int:
    """Hour of day in UTC."""
    return int(time // HOUR) % HOURS
