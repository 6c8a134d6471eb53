"""Decides whether a figure grows with time or only varies. Pure.

A straight line is fitted after a warm-up, in which caches and pools fill. Consecutive samples are
correlated (memory grows in steps), so they count as a smaller number of independent samples (by the
autocorrelation at lag one). The lower bound of the slope decides, so that noise does not count as a
leak.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import NormalDist, fmean, median

from bench.figures import neat, percentile

HOUR = 3600.0
#: The first third is warm-up.
WARM = 1 / 3
#: The true slope is above the lower bound in 95 of 100 soaks.
_Z = NormalDist().inv_cdf(0.95)
#: Minimum number of samples.
FEWEST = 8
#: Maximum autocorrelation that is used.
MOST_ALIKE = 0.98

Series = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Line:
    """A slope per hour, and its bounds in nine of ten soaks."""

    slope: float
    low: float
    high: float

    def told(self) -> dict[str, float]:
        return {"slope": neat(self.slope), "low": neat(self.low), "high": neat(self.high)}


def after_warm_up(series: Series) -> Series:
    """The samples after the first third of the time."""
    first, last = series[0][0], series[-1][0]
    return [(at, value) for at, value in series if at >= first + (last - first) * WARM]


def fit(series: Series) -> Line:
    """The line through (seconds, value); raises ValueError if there are too few samples."""
    if len(series) < FEWEST or series[0][0] == series[-1][0]:
        raise ValueError(
            f"{len(series)} samples are too few for a line; {FEWEST} at different times are needed"
        )
    hours = [at / HOUR for at, _ in series]
    values = [value for _, value in series]
    middle, mean = fmean(hours), fmean(values)
    spread = sum((at - middle) ** 2 for at in hours)
    slope = sum((a - middle) * (v - mean) for a, v in zip(hours, values, strict=True)) / spread
    rest = [v - mean - slope * (a - middle) for a, v in zip(hours, values, strict=True)]
    freedom = max(1.0, worth(rest) - 2)
    error = math.sqrt(sum(one * one for one in rest) / freedom / spread)
    margin = _student(freedom) * error
    return Line(slope, slope - margin, slope + margin)


def worth(rest: Sequence[float]) -> float:
    """The equivalent number of independent samples."""
    power = sum(one * one for one in rest)
    alike = sum(a * b for a, b in pairwise(rest)) / power if power else 0.0
    alike = min(max(alike, 0.0), MOST_ALIKE)
    return len(rest) * (1 - alike) / (1 + alike)


def _student(freedom: float) -> float:
    """Student's quantile from the normal one (Fisher and Cornish's series)."""
    z = _Z
    first = (z**3 + z) / (4 * freedom)
    second = (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
    return z + first + second


def grows(series: Series, budget: float) -> bool:
    """Whether it grows by more than `budget` per hour, without noise."""
    return fit(series).low > budget


def piles_up(series: Series) -> bool:
    """For counts, such as open files: a leak is never returned, so the minimum must rise from each
    quarter to the next. A file that is opened once, late, is not a leak."""
    quarter = len(series) // 4
    starts = range(0, 4 * quarter, quarter) if quarter else ()
    floors = [min(value for _, value in series[at : at + quarter]) for at in starts]
    return grows(series, 0.0) and all(a < b for a, b in pairwise(floors))


def by_parts(series: Series, parts: int = 12) -> list[float]:
    """Medians of equal parts of the time, to show the shape."""
    first, last = series[0][0], series[-1][0]
    found: list[list[float]] = [[] for _ in range(parts)]
    for at, value in series:
        found[min(parts - 1, int(parts * (at - first) / (last - first or 1)))].append(value)
    return [neat(median(values)) for values in found if values]


def thirds(series: Series, share: float = 0.99) -> tuple[float, float]:
    """This percentile of the first third of the samples and of the last."""
    values = [value for _, value in series]
    third = max(1, len(values) // 3)
    return percentile(values[:third], share), percentile(values[-third:], share)
