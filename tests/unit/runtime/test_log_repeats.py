"""Log lines about a condition that lasts: the first at once, then one a minute, bounded."""

from __future__ import annotations

from skep.runtime.log_repeats import LIMIT, KeyedRepeats, repeated
from skep.testing.clock import ManualClock


def test_each_key_has_its_own_minute() -> None:
    clock = ManualClock()
    repeats = KeyedRepeats(clock)
    assert [repeats.due("a"), repeats.due("b"), repeats.due("a"), repeats.due("a")] == [1, 1, 0, 0]
    clock.advance(60.0)
    assert [repeats.due("a"), repeats.due("b")] == [3, 1]
    assert (repeated(1), repeated(3)) == ("", " (3 times since the last line)")


def test_the_oldest_key_is_forgotten() -> None:
    repeats = KeyedRepeats(ManualClock())
    for key in range(LIMIT + 1):
        assert repeats.due(key) == 1
    assert (repeats.due(1), repeats.due(0)) == (0, 1)
