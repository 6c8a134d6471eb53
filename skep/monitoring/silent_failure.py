"""Finds runs that finished with a wrong result: fewer items, an empty field, login pages. Pure.

A finished run is compared with the earlier runs of its job: item count, page size, shares of HTTP
statuses, and the share of items in which each field has a value. Medians are used, so that a few
unusual runs do not count. A steady trend and, where it explains the differences, the usual value
of the weekday are taken off first. A value is unusual when it is far from the median, measured by
the spread of the earlier runs, and when values like it have not come and gone before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from statistics import fmean, median

from skep.model.monitoring.run_summary import Finding, RunSummary

#: Runs that are compared, and those needed for a result.
HISTORY = 40
NEEDED = 5
#: Minimum number of runs of the same weekday to know its usual value.
SAME_DAY = 3
#: The week counts when the differences without it are this part of those with it, at most.
EXPLAINED = 0.8
#: Times that such a value was there before, after which it is not unusual; runs in a row are one.
SEEN_BEFORE = 2
#: Runs with such a value after which it is not unusual in any case.
LASTING = 7
#: How near such a value is, as a part of the distance from which a value is unusual.
ALIKE = 0.5
#: Distance from the median, in robust standard deviations, from which a value is unusual.
DEVIATIONS = 3.7
#: Factor between the deviation of a normal distribution and its median absolute deviation.
MAD_FACTOR = 1.4826
#: Least factors that count: fewer items, more items, another page size.
FEWER, MORE, SIZE = math.log(1.45), math.log(4.0), math.log(1.6)
#: Least change of a share: of a status, of a field.
STATUS_SHARE, FIELD_SHARE = 0.2, 0.3


def findings(run: RunSummary, history: Sequence[RunSummary]) -> list[Finding]:
    """What is unusual about a run, the most unusual first. `history`: earlier finished runs of
    the job, in any order."""
    past = sorted((old for old in history if old.run != run.run), key=lambda old: old.ended_at)
    past = past[-HISTORY:]
    if len(past) < NEEDED:
        return []
    found = [*_items(run, past), *_page_size(run, past), *_statuses(run, past)]
    found += _fields(run, past)
    return sorted(found, key=lambda one: -one.score)


def _items(run: RunSummary, past: Sequence[RunSummary]) -> list[Finding]:
    usual = median(old.items for old in past)
    noise = 1 / math.sqrt(max(usual, 1.0))
    score = _score(run, past, lambda one: math.log1p(one.items), noise, (FEWER, MORE))
    return [Finding("items", "", run.items, usual, score)] if score >= 1 else []


def _page_size(run: RunSummary, past: Sequence[RunSummary]) -> list[Finding]:
    past = [old for old in past if old.answers]
    if not run.answers or len(past) < NEEDED:
        return []
    usual = median(old.page_size for old in past)
    score = _score(run, past, lambda one: math.log1p(one.page_size), 0.02, (SIZE, SIZE))
    return [Finding("page_size", "", run.page_size, usual, score)] if score >= 1 else []


def _statuses(run: RunSummary, past: Sequence[RunSummary]) -> list[Finding]:
    past = [old for old in past if old.answers]
    if not run.answers or len(past) < NEEDED:
        return []
    # A share of few answers is noise: 1 of 4 is not 25%.
    noise = 0.5 / math.sqrt(run.answers)
    names = sorted({*run.statuses, *(name for old in past for name in old.statuses)})
    found = []
    for name in names:
        score = _score(run, past, _status(name), noise, (STATUS_SHARE, STATUS_SHARE))
        if score >= 1:
            usual = median(old.statuses.get(name, 0.0) for old in past)
            found.append(Finding("status", name, run.statuses.get(name, 0.0), usual, score))
    return found


def _status(name: str) -> Callable[[RunSummary], float]:
    return lambda one: one.statuses.get(name, 0.0)


def _fields(run: RunSummary, past: Sequence[RunSummary]) -> list[Finding]:
    """Fields that are missing more often; a field that more items have is not a failure."""
    past = [old for old in past if old.items]
    if not run.items or len(past) < NEEDED:
        return []
    noise, found = 0.5 / math.sqrt(run.items), []
    for name in sorted({name for old in past for name in old.fields}):
        score = _score(run, past, _field(name), noise, (FIELD_SHARE, math.inf))
        if score >= 1:
            usual = median(old.fields.get(name, 0.0) for old in past)
            found.append(Finding("field", name, run.fields.get(name, 0.0), usual, score))
    return found


def _field(name: str) -> Callable[[RunSummary], float]:
    return lambda one: one.fields.get(name, 0.0)


def _score(
    run: RunSummary,
    past: Sequence[RunSummary],
    figure: Callable[[RunSummary], float],
    noise: float,
    least: tuple[float, float],
) -> float:
    """How far a figure is beyond what is usual; 1 = at the limit."""
    value, values = _without_trend([*(figure(old) for old in past), figure(run)])
    days = [_weekday(old) for old in past]
    value, values, spread = _without_week(value, values, _weekday(run), days)
    usual = median(values)
    limit = max(DEVIATIONS * max(spread, noise / 3), least[value > usual])
    alike = [abs(old - value) <= limit * ALIKE for old in values]
    return 0.0 if _happens(alike) else abs(value - usual) / limit


def _happens(alike: Sequence[bool]) -> bool:
    """Whether earlier runs like this one make it usual: such as an empty run now and then, or a
    change that has lasted. Runs in a row may be one failure, and count once until then."""
    times = sum(now and not before for before, now in pairwise([False, *alike]))
    return times >= SEEN_BEFORE or sum(alike) >= LASTING


def _without_week(
    value: float, values: list[float], day: int, days: Sequence[int]
) -> tuple[float, list[float], float]:
    """The figures as if all weekdays were equal, and their spread: what is usual on a day is taken
    off. Only when the week explains a good part of the differences, and the day was seen often
    enough; otherwise a pattern would be read into noise."""
    if days.count(day) < SAME_DAY:
        return value, values, _spread(values)
    usual = {
        one: median(value for value, of in zip(values, days, strict=True) if of == one)
        for one in set(days)
    }
    flat = [one - usual[of] for one, of in zip(values, days, strict=True)]
    # Each day's own median makes the rest look smaller than it is.
    widened = math.sqrt(len(values) / max(len(values) - len(usual), 1))
    if _differences(flat) * widened >= EXPLAINED * _differences(values):
        return value, values, _spread(values)
    return value - usual[day], flat, _spread(flat) * widened


def _without_trend(values: Sequence[float]) -> tuple[float, list[float]]:
    """The last value and the earlier ones, as if the job had not grown or shrunk steadily: the
    difference between the medians of both halves is spread over the runs."""
    *earlier, last = values
    half = len(earlier) // 2
    if half < NEEDED:
        return last, earlier
    slope = (median(earlier[-half:]) - median(earlier[:half])) / (len(earlier) - half)
    return last, [one + slope * (len(earlier) - n) for n, one in enumerate(earlier)]


def _differences(values: Sequence[float]) -> float:
    """The mean distance from the median, in which a few quiet days of the week count too."""
    usual = median(values)
    return fmean(abs(one - usual) for one in values)


def _spread(values: Sequence[float]) -> float:
    """The standard deviation of most values; a few far ones do not count."""
    usual = median(values)
    return MAD_FACTOR * median(abs(old - usual) for old in values)


def _weekday(run: RunSummary) -> int:
    return datetime.fromtimestamp(run.ended_at, UTC).weekday()


def findings_text(found: Sequence[Finding]) -> str:
    """Findings as a sentence for people."""
    return "; ".join(_told(one) for one in found[:5])


def _told(one: Finding) -> str:
    if one.figure == "items":
        return f"{one.value:.0f} items, usually {one.usual:.0f}"
    if one.figure == "page_size":
        return f"{one.value:.0f} bytes per page, usually {one.usual:.0f}"
    what = "answers with status" if one.figure == "status" else "items with the field"
    return f"{one.value:.0%} of {what} {one.name[:50]}, usually {one.usual:.0%}"
