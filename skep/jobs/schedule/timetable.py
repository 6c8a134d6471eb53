"""Due times of a schedule: cron lines in a time zone, intervals, excluded days, jitter.

Pure, and equal in every center: due times depend only on the schedule and the wall clock, never
on the caller or on the number of calls. Instants are whole seconds since the epoch.

When the clocks change, a cron line that names hours follows local time: a skipped local time is
due once, at the moment of the shift (several skipped times together are one), and a local time
that occurs twice is due the first time only. A line that takes every hour (`*`) follows elapsed
time: hourly stays hourly.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from hashlib import blake2b
from itertools import islice, takewhile
from zoneinfo import ZoneInfo

from cronsim import CronSim

from skep.model.jobs.schedule import Schedule, ScheduleProblem, cron_fields, days_of, problems_in

#: A schedule that is not due within this number of days counts as never due.
HORIZON_DAYS = 3700
SHOWN = 5
HOURS = 24


class Timetable:
    """The due times of a schedule; the name of the job seeds the jitter."""

    def __init__(self, schedule: Schedule, job: str) -> None:
        self._every = schedule.every
        self._zone: tzinfo = UTC if schedule.zone == "UTC" else ZoneInfo(schedule.zone)
        self._excluded = [days_of(entry) for entry in schedule.exclude]
        self._jitter = schedule.jitter
        self._seed = job.encode() + b"\0"
        self._cron = _Cron(schedule.cron, self._zone) if schedule.cron else None

    def following(self, instant: float) -> int | None:
        """The first due time after `instant`; None when there is none."""
        last = instant + HORIZON_DAYS * 86400
        while instant < last:
            due = self._following(instant)
            if due is None or not self._excluded:
                return due
            day = datetime.fromtimestamp(due, self._zone).date()
            if not any(days.has(day) for days in self._excluded):
                return due
            instant = max(due, self._midnight_after(day) - 1)
        return None

    def all_after(self, instant: float) -> Iterator[int]:
        """Every due time after `instant`, in order."""
        due = self.following(instant)
        while due is not None:
            yield due
            due = self.following(due)

    def between(self, after: float, until: float) -> Iterator[int]:
        """Due times in (after, until]."""
        return takewhile(lambda due: due <= until, self.all_after(after))

    def fires_at(self, due: int) -> float:
        """The due time with its jitter: equal in every center and in every call."""
        if not self._jitter:
            return float(due)
        digest = blake2b(self._seed + str(due).encode(), digest_size=8).digest()
        return due + self._jitter * (int.from_bytes(digest, "big") / 2**64)

    def shown(self, instant: float, count: int = SHOWN) -> list[int]:
        """The next due times, for display."""
        return list(islice(self.all_after(instant), count))

    def _following(self, instant: float) -> int | None:
        if self._cron is not None:
            return self._cron.following(instant)
        if self._every is not None:
            return (int(instant // self._every) + 1) * self._every
        return None

    def _midnight_after(self, day: date) -> int:
        midnight = datetime.combine(day + timedelta(days=1), time())
        return instant_of(midnight, self._zone)


class _Cron:
    """One line in one zone."""

    def __init__(self, line: str, zone: tzinfo) -> None:
        self._zone = zone
        fields = cron_fields(line).split()
        start = datetime(2026, 1, 1)  # noqa: DTZ001 - replaced before every search
        hourly = len(CronSim(" ".join(fields), start).hours) == HOURS
        self._elapsed = hourly and zone is not UTC
        if self._elapsed:
            fields[-4] = "*"
            start = start.replace(tzinfo=zone)
        self._template = CronSim(" ".join(fields), start)

    def following(self, instant: float) -> int | None:
        local = datetime.fromtimestamp(int(instant // 1), self._zone)
        search = copy.copy(self._template)
        search.dt = local if self._elapsed else local.replace(tzinfo=None, fold=0)
        for found in search:
            due = int(found.timestamp()) if self._elapsed else instant_of(found, self._zone)
            # In the second pass of a repeated hour the line finds times of the first pass.
            if due > instant:
                return due
        return None


def instant_of(local: datetime, zone: tzinfo) -> int:
    """When the wall clock shows `local`: the first time if it occurs twice, the shift if it is
    skipped."""
    first = local.replace(tzinfo=zone, fold=0)
    late = int(first.timestamp())
    early = int(first.replace(fold=1).timestamp())
    if early >= late:  # shown once, or twice
        return late
    return _shift_between(early, late, zone)


def _shift_between(before: int, after: int, zone: tzinfo) -> int:
    """The first second with the new offset. The clock changes between the two instants."""
    new = datetime.fromtimestamp(after, zone).utcoffset()
    while after - before > 1:
        middle = (before + after) // 2
        if datetime.fromtimestamp(middle, zone).utcoffset() == new:
            after = middle
        else:
            before = middle
    return after


def schedule_problems(
    schedule: Schedule, job: str, now: float, path: str = "schedule"
) -> list[ScheduleProblem]:
    """The problems of `problems_in`, and a schedule whose due times are all excluded."""
    problems = problems_in(schedule, job, path)
    timed = schedule.cron or schedule.every is not None
    if not problems and timed and Timetable(schedule, job).following(now) is None:
        problems.append(
            ScheduleProblem(path, "it is never due: every due time is on an excluded day")
        )
    return problems


def next_fires(schedule: Schedule, job: str, now: float, count: int = SHOWN) -> list[str]:
    """The next due times as ISO 8601 in the schedule's own zone, for display."""
    zone = ZoneInfo(schedule.zone)
    return [
        datetime.fromtimestamp(due, zone).isoformat()
        for due in Timetable(schedule, job).shown(now, count)
    ]
