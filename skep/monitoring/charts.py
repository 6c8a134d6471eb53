"""Turns rows of series into the points of charts. Pure.

A rate is a number per second; a level is the mean of its samples; of latencies there are
quantiles. A point without any row is null: no center wrote figures at that time.
"""

from __future__ import annotations

from collections.abc import Sequence

from skep.model.monitoring.buckets import bounded_labels, limit_of, merge
from skep.model.monitoring.series import BY_NAME, Cells, SeriesInfo, SeriesRow
from skep.monitoring.latency import QUANTILES, counts_of, quantile

#: Label -> points.
Lines = dict[str, list[float | None]]


def in_points(rows: Sequence[SeriesRow], start: int, step: int, count: int) -> list[Cells | None]:
    """The cells of each point; None without a row."""
    points: list[Cells | None] = [None] * count
    for row in rows:
        number = (row.at - start) // step
        if 0 <= number < count:
            cells = points[number]
            if cells is None:
                cells = points[number] = {}
            merge(cells, row.cells)
    return points


def lines_of(name: str, points: Sequence[Cells | None], step: int) -> Lines:
    """The lines of one series, the largest first."""
    info = BY_NAME[name]
    if info.kind == "latency":
        return _latencies(name, points)
    labels = _labels(name, points)
    return {label: [_value(info, cells, label, step) for cells in points] for label in labels}


def _labels(name: str, points: Sequence[Cells | None]) -> list[str]:
    total: Cells = {name: {}}
    for cells in points:
        if cells and name in cells:
            merge(total, {name: cells[name]})
    kept = bounded_labels(total[name], limit_of(name))
    return sorted(kept, key=lambda label: (-kept[label][0], label)) or [""]


def _value(info: SeriesInfo, cells: Cells | None, label: str, step: int) -> float | None:
    if cells is None:
        return None
    found = cells.get(info.name, {}).get(label)
    if info.kind == "rate":
        return round(found[0] / step, 6) if found else 0.0
    return round(found[0] / found[1], 6) if found and found[1] else None


def _latencies(name: str, points: Sequence[Cells | None]) -> Lines:
    counts = [counts_of(cells.get(name, {})) if cells else None for cells in points]
    return {
        f"p{share * 100:g}": [None if one is None else quantile(one, share) for one in counts]
        for share in QUANTILES
    }


def mean_of(info: SeriesInfo, cells: Cells, label: str, seconds: float) -> float | None:
    """One value over a time: a rate per second, a mean level, or the 99th percentile. An empty
    label takes all labels together."""
    found = cells.get(info.name, {})
    if info.kind == "latency":
        return quantile(counts_of(found), QUANTILES[-1])
    wanted = [cell for key, cell in found.items() if not label or key == label]
    if info.kind == "rate":
        return sum(n for n, _ in wanted) / seconds
    return sum(n / k for n, k in wanted if k) if wanted else None
