"""Intervals of time: which resolution holds a moment, and how cells add up. Pure.

Used by centers that write, roll up and read series. Nothing here reads a clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from skep.model.monitoring.series import HOSTS, LABEL_LENGTH, LABELS, OTHER, Cell, Cells


class Resolution(NamedTuple):
    """Intervals of `step` seconds, kept for `kept` seconds."""

    step: int
    kept: int


FINE = Resolution(10, 3600)
MIDDLE = Resolution(60, 86_400)
COARSE = Resolution(600, 90 * 86_400)
RESOLUTIONS = (FINE, MIDDLE, COARSE)
#: Points of one series in an answer.
POINTS = 1000
#: Labels of series that are known to be few have a higher limit.
MANY_LABELS = 64


def bucket(at: float, step: int) -> int:
    """The start of the interval that holds a moment."""
    return int(at // step) * step


def resolution_for(start: float, end: float, now: float, step: int = 0) -> Resolution:
    """The finest resolution that still has `start`, has no more points than allowed, and is not
    finer than the requested step needs."""
    wanted = max(step, (end - start) / POINTS)
    for found in RESOLUTIONS:
        # One interval of margin: the oldest one is deleted as a whole.
        has_start = start >= now - found.kept - found.step
        coarser = _next(found)
        if has_start and (wanted <= found.step or coarser is None or wanted < coarser.step):
            return found
    return COARSE


def _next(resolution: Resolution) -> Resolution | None:
    later = [other for other in RESOLUTIONS if other.step > resolution.step]
    return later[0] if later else None


def step_for(start: float, end: float, resolution: Resolution, step: int = 0) -> int:
    """Seconds between two points: a multiple of the resolution, with at most POINTS points."""
    wanted = max(step, (end - start) / POINTS, resolution.step)
    return -int(-wanted // resolution.step) * resolution.step


def plain_label(text: str) -> str:
    """A label without control characters, and short: it comes from hosts and users."""
    clean = text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)
    return clean.encode(errors="replace").decode()[:LABEL_LENGTH]


def merge(into: Cells, cells: Mapping[str, Mapping[str, Cell]]) -> None:
    """Add cells to others."""
    for name, labels in cells.items():
        known = into.setdefault(name, {})
        for label, (total, samples) in labels.items():
            n, k = known.get(label, (0.0, 0))
            known[label] = (n + total, k + samples)


def merged(rows: Iterable[Cells]) -> Cells:
    """The sum of rows, with bounded labels."""
    total: Cells = {}
    for cells in rows:
        merge(total, cells)
    return bounded(total)


def bounded(cells: Cells) -> Cells:
    """The largest labels of each series; the rest is summed as `other`."""
    return {name: bounded_labels(labels, limit_of(name)) for name, labels in cells.items()}


def limit_of(name: str) -> int:
    return LABELS if name == HOSTS else MANY_LABELS


def bounded_labels(labels: Mapping[str, Cell], limit: int) -> dict[str, Cell]:
    """At most `limit` labels and `other`."""
    if len(labels) <= limit + (OTHER in labels):
        return dict(labels)
    named = [(label, cell) for label, cell in labels.items() if label != OTHER]
    named.sort(key=lambda pair: (-pair[1][0], pair[0]))
    rest = [cell for _, cell in named[limit:]] + [labels.get(OTHER, (0.0, 0))]
    other = (sum(n for n, _ in rest), sum(k for _, k in rest))
    return {**dict(named[:limit]), OTHER: other}
