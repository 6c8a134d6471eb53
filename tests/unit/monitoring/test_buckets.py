"""Intervals of time, and cells that add up."""

from __future__ import annotations

import pytest

from skep.model.monitoring.buckets import (
    COARSE,
    FINE,
    MIDDLE,
    POINTS,
    bounded,
    bounded_labels,
    bucket,
    merged,
    plain_label,
    resolution_for,
    step_for,
)
from skep.model.monitoring.series import HOSTS, LABEL_LENGTH, LABELS, OTHER

NOW = 1_767_225_600.0


@pytest.mark.parametrize(
    ("age", "length", "step", "found"),
    [
        (3600, 3600, 0, FINE),
        (3700, 600, 0, MIDDLE),
        (86_400, 86_400, 0, MIDDLE),
        (2 * 86_400, 86_400, 0, COARSE),
        (90 * 86_400, 90 * 86_400, 0, COARSE),
        (3600, 3600, 60, MIDDLE),
        (3600, 3600, 30, FINE),
        (3600, 3600, 3600, COARSE),
        (400 * 86_400, 86_400, 0, COARSE),
    ],
)
def test_the_finest_resolution_that_has_the_time(
    age: float, length: float, step: int, found: object
) -> None:
    assert resolution_for(NOW - age, NOW - age + length, NOW, step) == found


@pytest.mark.parametrize("days", [0.01, 0.5, 3, 30, 90, 100_000])
def test_the_points_of_an_answer_are_bounded(days: float) -> None:
    start = NOW - days * 86_400
    resolution = resolution_for(start, NOW, NOW)
    step = step_for(start, NOW, resolution)
    assert step % resolution.step == 0
    assert (NOW - start) / step <= POINTS


def test_buckets() -> None:
    assert [bucket(at, 10) for at in (0, 9.99, 10, 1e9 + 5, -1)] == [0, 0, 10, 10**9, -10]


def test_a_million_hosts_become_a_few_and_other() -> None:
    labels = {f"h{number}": (float(number % 97 + 1), 1) for number in range(1_000_000)}
    total = sum(n for n, _ in labels.values())
    found = bounded_labels(labels, LABELS)
    assert len(found) == LABELS + 1
    assert sum(n for n, _ in found.values()) == total
    assert found[OTHER][1] == 1_000_000 - LABELS
    assert bounded_labels(found, LABELS) == found, "a second time changes nothing"


def test_rows_add_up_and_stay_bounded() -> None:
    rows = [{HOSTS: {f"h{n}-{row}": (1.0, 1) for n in range(LABELS)}} for row in range(30)]
    found = merged(rows)[HOSTS]
    assert len(found) == LABELS + 1
    assert sum(n for n, _ in found.values()) == 30 * LABELS
    assert bounded({"x": {}}) == {"x": {}}


@pytest.mark.parametrize(
    "label", ["\0", "a\nb", "\x1b[2J", "\ud800", "x" * 10_000, "'; DROP TABLE", "名前"]
)
def test_hostile_labels_become_plain(label: str) -> None:
    found = plain_label(label)
    assert found.isprintable()
    assert len(found) <= LABEL_LENGTH
    found.encode()
