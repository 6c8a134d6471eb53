"""Windows: counts, event time, lateness, bounded memory, and state that survives."""

from __future__ import annotations

import math
from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skep.pipelines.windows import Aggregate, Closed, CountWindows, TimeWindows, WindowRefused

NOW = 10_000.0


def counts(closed: list[Closed]) -> list[tuple[str, float, float, int]]:
    return [(one.key, one.start, one.end, one.result.count) for one in closed]


def test_a_tumbling_window_of_three_values() -> None:
    windows = CountWindows(3)
    closed = [one for value in range(1, 8) for one in windows.add("a", value)]
    assert closed == [
        Closed("a", 0, 3, Aggregate(3, 6, 1, 3)),
        Closed("a", 3, 6, Aggregate(3, 15, 4, 6)),
    ]


def test_a_sliding_window_of_four_values_every_two() -> None:
    windows = CountWindows(4, 2)
    closed = [one for value in range(1, 9) for one in windows.add("a", value)]
    assert [(one.start, one.end, one.result.total) for one in closed] == [
        (0, 4, 10), (2, 6, 18), (4, 8, 26),
    ]  # fmt: skip


def test_keys_do_not_share_windows() -> None:
    windows = CountWindows(2)
    assert windows.add("a", 1) == windows.add("b", 1) == []
    assert counts(windows.add("a", 1)) == [("a", 0, 2, 2)]


def test_a_tumbling_window_of_time_closes_with_the_watermark() -> None:
    windows = TimeWindows(10, lateness=5)
    assert windows.add("a", 3, 1, NOW) == []
    assert windows.add("a", 12, 1, NOW) == []
    assert windows.add("a", 9, 1, NOW) == [], "inside the lateness"
    assert counts(windows.add("b", 15, 1, NOW)) == [("a", 0, 10, 2)]
    with pytest.raises(WindowRefused, match="late"):
        windows.add("a", 9, 1, NOW)
    assert counts(windows.advance(100)) == [("a", 10, 20, 1), ("b", 10, 20, 1)]


def test_a_sliding_window_of_time_counts_an_event_in_each_of_its_windows() -> None:
    windows = TimeWindows(10, 5)
    windows.add("a", 7, 1, NOW)
    assert counts(windows.advance(1000)) == [("a", 0, 10, 1), ("a", 5, 15, 1)]


def test_an_event_from_the_future_does_not_make_others_late() -> None:
    windows = TimeWindows(10, ahead=60)
    for time in (NOW + 61, math.inf, math.nan):
        with pytest.raises(WindowRefused, match="future"):
            windows.add("a", time, 1, NOW)
    assert windows.add("a", NOW, 1, NOW) == []


def test_a_long_gap_costs_nothing() -> None:
    windows = TimeWindows(1, lateness=0)
    windows.add("a", 0, 1, 1e12)
    assert counts(windows.add("a", 1e12, 1, 1e12)) == [("a", 0, 1, 1)]


def test_memory_is_bounded_by_keys_and_panes() -> None:
    small = TimeWindows(10, 5, key_limit=2)
    for number in range(1000):
        small.add("a", number, 1, NOW)
    assert len(small.state()) < 1000
    small.add("b", 999, 1, NOW)
    with pytest.raises(WindowRefused, match="2 keys"):
        small.add("c", 999, 1, NOW)
    small.advance(5000)
    small.add("c", 5000, 1, NOW)
    few = CountWindows(2, key_limit=1)
    few.add("a", 1)
    with pytest.raises(WindowRefused, match="1 keys"):
        few.add("b", 1)


@pytest.mark.parametrize(("size", "slide"), [(10, 3), (1, 2), (10, -1), (5000, 1)])
def test_sizes_that_do_not_fit(size: int, slide: int) -> None:
    with pytest.raises(ValueError, match="as wide as its slide"):
        CountWindows(size, slide)


_events = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 60)), max_size=40)


@settings(max_examples=200, deadline=None)
@given(
    _events, st.sampled_from([(10, 10), (10, 5), (12, 3)]), st.integers(0, 20), st.integers(0, 40)
)
def test_time_windows_agree_with_a_plain_count(
    events: list[tuple[str, int]], shape: tuple[int, int], lateness: int, cut: int
) -> None:
    """Each event that is not late is in every window that was open for it; a machine that is
    restored from its state continues as the first one would."""
    size, slide = shape
    windows = TimeWindows(size, slide, lateness)
    expected: dict[tuple[str, int], int] = defaultdict(int)
    closed: list[Closed] = []
    mark = -math.inf
    for number, (key, time) in enumerate(events):
        if number == cut:
            state = windows.state()
            windows = TimeWindows(size, slide, lateness)
            windows.restore(state)
        first = (time - size) // slide * slide + slide
        open_now = [s for s in range(first, time + 1, slide) if not s + size <= mark]
        try:
            closed += windows.add(key, time, 1, NOW)
        except WindowRefused:
            assert open_now == []
            continue
        for start in open_now:
            expected[key, start] += 1
        mark = max(mark, (time - lateness) // slide * slide)
    closed += windows.advance(10_000)
    assert {(one.key, int(one.start)): one.result.count for one in closed} == expected
    assert len(closed) == len(expected), "no window is closed twice"


@given(st.lists(st.integers(-5, 5), max_size=50), st.integers(0, 50))
def test_count_windows_continue_after_a_restore(values: list[int], cut: int) -> None:
    whole, parts = CountWindows(6, 2), CountWindows(6, 2)
    for number, value in enumerate(values):
        if number == cut:
            state = parts.state()
            parts = CountWindows(6, 2)
            parts.restore(state)
        assert whole.add("a", value) == parts.add("a", value)
