"""Samples, medians and the result that a benchmark prints. Pure.

Subjects alternate, and each round starts with another one, so that other load on the machine
affects all of them equally.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Sample = Mapping[str, float]


class Wrong(RuntimeError):
    """The measured work was not done, or not completely."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured quantity over all rounds."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def spread(self) -> tuple[float, float]:
        return min(self.values), max(self.values)

    def told(self) -> dict[str, Any]:
        low, high = self.spread
        return {"median": neat(self.median), "min": neat(low), "max": neat(high)}


def alternate(
    subjects: Mapping[str, Callable[[], Sample]], rounds: int
) -> dict[str, dict[str, Figure]]:
    """Run each subject once per round; subject -> quantity -> figure."""
    taken: dict[str, list[Sample]] = {name: [] for name in subjects}
    names = list(subjects)
    for number in range(rounds):
        first = number % len(names)
        for name in [*names[first:], *names[:first]]:
            taken[name].append(subjects[name]())
    return {name: _figures(samples) for name, samples in taken.items()}


def _figures(samples: Sequence[Sample]) -> dict[str, Figure]:
    return {key: Figure(tuple(sample[key] for sample in samples)) for key in samples[0]}


def neat(value: float) -> float:
    """Four significant digits: more would suggest a precision that no shared machine has."""
    return float(f"{value:.4g}")


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one benchmark. `ratio` is compared with `bar`."""

    name: str
    unit: str
    ours: float
    peer: float | None
    floor: float | None
    ratio: float
    bar: float
    ok: bool
    #: The meaning of the ratio, and whether a larger or a smaller one is better.
    meaning: str
    more: dict[str, Any] = field(default_factory=dict)

    def told(self) -> dict[str, Any]:
        """As printed with --json: the documented keys first."""
        return {
            "name": self.name,
            "ours": neat(self.ours),
            "peer": None if self.peer is None else neat(self.peer),
            "floor": None if self.floor is None else neat(self.floor),
            "ratio": neat(self.ratio),
            "bar": self.bar,
            "ok": self.ok,
            "unit": self.unit,
            "meaning": self.meaning,
            **self.more,
        }


def check(expected: object, found: object, what: str) -> None:
    """Raises Wrong if the values differ."""
    if expected != found:
        raise Wrong(f"{what}: expected {expected}, found {found}")


def percentile(samples: Sequence[float], share: float) -> float:
    """The sample at this share of all; 0 without samples."""
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0
