"""Latency histograms with fixed limits, and quantiles from them. Pure.

Fixed limits make histograms of several centers and intervals add up. Counting is one search in a
short list, since it runs for every download.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence

from skep.model.monitoring.series import Cell

#: Upper limits in microseconds; the last interval is open.
LIMITS_US: tuple[int, ...] = (
    5_000,
    10_000,
    20_000,
    50_000,
    100_000,
    200_000,
    500_000,
    1_000_000,
    2_000_000,
    5_000_000,
    10_000_000,
    30_000_000,
    60_000_000,
)
QUANTILES = (0.5, 0.9, 0.99)


def interval_of(elapsed_us: int) -> int:
    """The number of the interval that holds a duration."""
    return bisect_left(LIMITS_US, elapsed_us)


def quantile(counts: Sequence[float], share: float) -> float | None:
    """Seconds below which this share of the durations is; None without any. Linear inside an
    interval; the open interval counts as its lower limit."""
    total = sum(counts)
    if total <= 0:
        return None
    wanted, below = share * total, 0.0
    for number, count in enumerate(counts):
        if count > 0 and below + count >= wanted:
            return _inside(number, (wanted - below) / count)
        below += count
    return LIMITS_US[-1] / 1e6


def _inside(number: int, part: float) -> float:
    low = LIMITS_US[number - 1] if number else 0
    high = LIMITS_US[number] if number < len(LIMITS_US) else low
    return (low + (high - low) * part) / 1e6


def counts_of(labels: Mapping[str, Cell]) -> list[float]:
    """The histogram of stored cells; labels that are no interval are ignored."""
    counts = [0.0] * (len(LIMITS_US) + 1)
    for label, (n, _) in labels.items():
        if label.isascii() and label.isdigit() and len(label) < 3 and int(label) < len(counts):  # noqa: PLR2004
            counts[int(label)] += n
    return counts
