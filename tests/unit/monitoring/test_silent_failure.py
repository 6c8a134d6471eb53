"""Runs that end well with a wrong result."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from msgspec.structs import replace

from skep.model.monitoring.run_summary import RunSummary
from skep.monitoring.silent_failure import NEEDED, findings, findings_text
from skep.testing.doubles.run_histories import CHANGES, History, histories
from skep.testing.doubles.shaped_histories import shaped_histories

DAY = 86_400.0


def steady(count: int = 20, items: int = 100) -> list[RunSummary]:
    return [
        RunSummary(
            f"r{n}",
            "job",
            n * DAY,
            answers=items,
            items=items + n % 3,
            page_size=5000.0 + n,
            statuses={"200": 1.0},
            fields={"title": 1.0, "price": 0.9},
        )
        for n in range(count)
    ]


@pytest.mark.parametrize("make", [histories, shaped_histories])
@pytest.mark.parametrize("seed", range(5))
def test_planted_changes_are_found(make: Callable[[Random], list[History]], seed: int) -> None:
    """200 histories with 40 planted changes: 36 found, 4 false alarms at most."""
    all_of_them = make(Random(seed))
    planted = [one for one in all_of_them if one.change]
    assert len(planted) == 40
    assert {one.change for one in planted} == set(CHANGES)
    found = [one for one in planted if findings(one.last, one.past)]
    false = [one for one in all_of_them if not one.change and findings(one.last, one.past)]
    assert len(found) >= 36, [(one.kind, one.change) for one in planted if one not in found]
    assert len(false) <= 4, [one.kind for one in false]


def test_what_differs_is_named() -> None:
    *past, last = steady()
    assert findings(last, past) == []
    half = findings(replace(last, items=50), past)
    assert [one.figure for one in half] == ["items"]
    assert findings_text(half) == "50 items, usually 101"
    empty = findings(replace(last, fields={"title": 1.0}), past)
    assert [(one.figure, one.name) for one in empty] == [("field", "price")]
    assert findings_text(empty) == "0% of items with the field price, usually 90%"
    login = findings(replace(last, page_size=900.0), past)
    assert [one.figure for one in login] == ["page_size"]
    mixed = findings(replace(last, statuses={"200": 0.4, "403": 0.6}), past)
    assert {(one.figure, one.name) for one in mixed} == {("status", "200"), ("status", "403")}


def test_a_short_history_says_nothing() -> None:
    *past, last = steady(NEEDED)
    assert findings(replace(last, items=0), past) == []
    assert findings(replace(last, items=0), []) == []


def test_a_change_that_stays_becomes_usual() -> None:
    past, now = steady(20), steady(40)[20:]
    alarms = []
    for run in (replace(one, items=50) for one in now):
        alarms.append(bool(findings(run, past)))
        past.append(run)
    assert all(alarms[:5]), "a failure that lasts is not usual at once"
    assert not any(alarms[10:]), "after a week it is usual"


def test_a_weekday_is_compared_with_its_like() -> None:
    runs = [replace(one, items=10 if n % 7 > 4 else 100) for n, one in enumerate(steady(41))]
    assert findings(runs[-1], runs[:-1]) == [], "a quiet day of the week"
    assert findings(replace(runs[-2], items=10), runs[:-2])


def test_what_comes_and_goes_is_usual() -> None:
    """An empty run now and then is no alarm; a half-empty one, which never was, is one."""
    runs = [replace(one, items=0 if n in (7, 20, 33) else 100) for n, one in enumerate(steady(40))]
    last = replace(runs[-1], run="last")
    assert findings(replace(last, items=0, fields={}), runs) == []
    assert [one.figure for one in findings(replace(last, items=45), runs)] == ["items"]
    *past, once = runs[:21]
    assert findings(replace(once, items=0, fields={}), past), "the second time"


def test_extreme_values_are_no_error() -> None:
    odd = [replace(one, items=10**12 * (n % 2), page_size=0.0) for n, one in enumerate(steady())]
    findings(replace(odd[-1], items=0, answers=0, statuses={}, fields={}), odd)
