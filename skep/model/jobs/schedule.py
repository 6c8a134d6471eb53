"""The schedule of a job, and its validation.

Pure; used by centers and by tools that write job files. `jobs/schedule/timetable.py` computes
the times; only the form is checked here, and all problems are reported together.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date, datetime
from enum import StrEnum
from typing import Annotated, NamedTuple
from zoneinfo import ZoneInfo

import msgspec
from cronsim import CronSim, CronSimError
from msgspec import Meta

YEAR = 366 * 86400

#: Start of the check whether a cron line ever comes due; any date works.
_SOME_DAY = datetime(2026, 1, 1)  # noqa: DTZ001 - a wall clock without a place
_YEARLY = re.compile(r"\d\d-\d\d")

MACROS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
#: Allowed values of the fields of a cron line; the first field is optional.
_CRON_FIELDS = {
    "second": "0 to 59",
    "minute": "0 to 59",
    "hour": "0 to 23",
    "day of the month": "1 to 31 or L",
    "month": "1 to 12 or jan to dec",
    "day of the week": "0 to 7 or sun to sat",
}
_LONGEST_MONTH = 31
WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


class Overlap(StrEnum):
    """What to do at a due time while an earlier run of the job is still running."""

    SKIP = "skip"
    QUEUE = "queue"
    REPLACE = "replace"
    PARALLEL = "parallel"


class CatchUp(StrEnum):
    """What to do with due times that no center processed in time (`grace`)."""

    SKIP = "skip"
    ONE = "one"
    ALL = "all"


class Schedule(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """At least one of `cron`, `every` and `after`; not both of the first two."""

    #: Five fields (six with seconds in front), or `@hourly`, `@daily` and so on.
    cron: Annotated[str, Meta(max_length=200)] = ""
    #: Whole seconds between two due times, counted from 1970-01-01T00:00:00Z.
    every: Annotated[int, Meta(ge=1, le=YEAR)] | None = None
    #: Jobs: each time a run of one of them succeeds, this job runs.
    after: tuple[str, ...] = ()
    #: Time zone of `cron` and `exclude`, by its IANA name, such as `Europe/Berlin`.
    zone: Annotated[str, Meta(max_length=64)] = "UTC"
    #: Days without due times: `sat`, `12-25` (each year), `2026-12-24`, or
    #: `2026-12-24/2027-01-02` (both ends included).
    exclude: tuple[str, ...] = ()
    #: Maximum delay of a due time, in seconds; the same due time always has the same delay.
    jitter: Annotated[float, Meta(ge=0, le=86400)] = 0.0
    overlap: Overlap = Overlap.SKIP
    #: With `overlap: queue`, the maximum number of due times that wait; further ones are skipped.
    queue_limit: Annotated[int, Meta(ge=1, le=1000)] = 10
    catch_up: CatchUp = CatchUp.ONE
    #: Seconds after which a missed due time is handled by `catch_up`.
    grace: Annotated[float, Meta(ge=1, le=YEAR)] = 60.0


class ScheduleProblem(NamedTuple):
    """What is wrong, and where in the document: `schedule.exclude[2]`."""

    path: str
    message: str


def problems_in(schedule: Schedule, job: str = "", path: str = "schedule") -> list[ScheduleProblem]:
    """All problems of a schedule; an empty list means that it is valid.

    `job` is the name of the job that has it, which cannot wait for itself. Cycles of several
    jobs are found by `jobs.chains.ring`, which knows the others.
    """
    return [
        ScheduleProblem(f"{path}.{where}" if where else path, message)
        for found in (_kind(schedule), _cron(schedule), _zone(schedule), _exclude(schedule))
        for where, message in found
    ] + [ScheduleProblem(f"{path}.{where}", message) for where, message in _after(schedule, job)]


def cron_fields(line: str) -> str:
    """The line with its macro expanded; raises ValueError with a message."""
    spelled = MACROS.get(line.strip().lower(), line)
    if spelled.strip().startswith("@"):
        raise ValueError(f"{line.strip()!r} is not a known macro; use one of {', '.join(MACROS)}")
    try:
        next(CronSim(spelled, _SOME_DAY))
    except (CronSimError, AssertionError) as error:
        told = _wrong_field(spelled.split(), str(error))
        raise ValueError(f"{line!r} is not a cron line: {told}") from error
    except StopIteration as error:
        raise ValueError(f"{line!r} never comes due; choose a day that exists") from error
    return spelled


def _wrong_field(fields: list[str], told: str) -> str:
    """The wrong field, and its allowed values. cronsim says `Bad minute`."""
    names = list(_CRON_FIELDS)[-len(fields) :]
    name = told.removeprefix("Bad ").replace("-of-", " of the ")
    if len(fields) not in {5, 6} or name not in names:
        return f"it has {len(fields)} fields; write minute, hour, day, month and weekday"
    value = fields[names.index(name)]
    if name == "day of the month" and value.isdecimal() and 1 <= int(value) <= _LONGEST_MONTH:
        return f"month {fields[-2]} has no day {value}"
    return (
        f"its {name} is {value!r}; it must be {_CRON_FIELDS[name]}, "
        "or `*`, a range `1-5`, a list `1,3` or a step `*/2`"
    )


class Days(NamedTuple):
    """One entry of `exclude`: a weekday, a day of each year, or days from first to last."""

    weekday: int | None = None
    yearly: tuple[int, int] | None = None
    first: date = date.max
    last: date = date.min

    def has(self, day: date) -> bool:
        if self.weekday is not None:
            return day.weekday() == self.weekday
        if self.yearly is not None:
            return (day.month, day.day) == self.yearly
        return self.first <= day <= self.last


def days_of(entry: str) -> Days:
    """Parses one entry of `exclude`; raises ValueError with a message."""
    text = entry.strip().lower()
    if text in WEEKDAYS:
        return Days(weekday=WEEKDAYS.index(text))
    try:
        if _YEARLY.fullmatch(text):
            leap = date.fromisoformat(f"2024-{text}")
            return Days(yearly=(leap.month, leap.day))
        first, _, last = text.partition("/")
        return _from_to(date.fromisoformat(first), date.fromisoformat(last or first))
    except ValueError as error:
        why = "" if "isoformat" in str(error) else f" ({error})"
        raise ValueError(
            f"{entry!r} is not a day{why}; write sat, 12-25, 2026-12-24 or 2026-12-24/2027-01-02"
        ) from error


def _from_to(first: date, last: date) -> Days:
    if last < first:
        raise ValueError("the last day is before the first")
    return Days(first=first, last=last)


_Found = Iterator[tuple[str, str]]


def _kind(schedule: Schedule) -> _Found:
    if schedule.cron and schedule.every is not None:
        yield "every", "set either cron or every, not both"
    if not schedule.cron and schedule.every is None and not schedule.after:
        yield "", "set one of cron, every or after"


def _cron(schedule: Schedule) -> _Found:
    if schedule.cron:
        try:
            cron_fields(schedule.cron)
        except ValueError as error:
            yield "cron", str(error)


def _zone(schedule: Schedule) -> _Found:
    try:
        ZoneInfo(schedule.zone)
    except (KeyError, ValueError, OSError):
        yield "zone", f"{schedule.zone!r} is not a valid time zone; write one such as Europe/Berlin"


def _exclude(schedule: Schedule) -> _Found:
    weekdays = set()
    for number, entry in enumerate(schedule.exclude):
        try:
            weekdays.add(days_of(entry).weekday)
        except ValueError as error:
            yield f"exclude[{number}]", str(error)
    if weekdays.issuperset(range(7)):
        yield "exclude", "all seven weekdays are excluded: the job would never run"


def _after(schedule: Schedule, job: str) -> _Found:
    for number, name in enumerate(schedule.after):
        if not name.strip():
            yield f"after[{number}]", "name a job"
        elif name == job:
            yield f"after[{number}]", f"{name} cannot depend on itself"
        elif name in schedule.after[:number]:
            yield f"after[{number}]", f"{name} is listed twice"
