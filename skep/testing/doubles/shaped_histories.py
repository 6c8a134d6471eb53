"""A second generator of run histories, with other shapes than `run_histories`. For tests and bench.

Each job has a weekly pattern of its own, a trend that may change halfway, and noise with a heavy
tail; runs start several times a day, daily or every few days. A rule that was tuned to one
generator shows it here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random

import msgspec

from skep.model.monitoring.run_summary import RunSummary
from skep.testing.doubles.run_histories import CHANGES, DAY, START, History

#: Runs per day.
PACES = (0.5, 1.0, 1.0, 4.0)
STATUSES = ("200", "301", "404", "429", "500")


@dataclass(frozen=True, slots=True)
class _Shape:
    items: float
    #: Factor of each weekday.
    week: tuple[float, ...]
    #: Growth per run before and after the middle of the history.
    trend: tuple[float, float]
    noise: float
    size: float
    #: Share of each status but the first.
    others: tuple[float, ...]
    #: Fill rate of each field; the first is the one that a change empties.
    fields: dict[str, float]
    pace: float


def shaped_histories(rng: Random, count: int = 200, planted: int = 40) -> list[History]:
    """`planted` of them have a change."""
    chosen = sorted(rng.sample(range(count), planted))
    changes = {number: CHANGES[i % len(CHANGES)] for i, number in enumerate(chosen)}
    return [_history(rng, number, changes.get(number, "")) for number in range(count)]


def _shape(rng: Random) -> _Shape:
    strength = rng.choice((0.0, 0.1, 0.3))
    growth = rng.uniform(-0.004, 0.01)
    return _Shape(
        items=10 ** rng.uniform(1.5, 4.5),
        week=tuple(math.exp(rng.gauss(0, strength)) for _ in range(7)),
        trend=(growth, growth * rng.choice((0.0, 1.0, 2.0))),
        noise=rng.uniform(0.01, 0.1),
        size=10 ** rng.uniform(3.6, 5.5),
        others=tuple(rng.choice((0.0, 0.0, 0.02, 0.08)) for _ in STATUSES[1:]),
        fields={f"f{n}": rng.choice((1.0, 1.0, 0.95, 0.6)) for n in range(rng.randint(2, 8))}
        | {"f0": rng.uniform(0.8, 1.0)},
        pace=rng.choice(PACES),
    )


def _tailed(rng: Random) -> float:
    """Student's t with three degrees of freedom: now and then five times the usual distance."""
    chi = sum(rng.gauss(0, 1) ** 2 for _ in range(3))
    return rng.gauss(0, 1) / math.sqrt(chi / 3)


def _history(rng: Random, number: int, change: str) -> History:
    shape, length = _shape(rng), rng.randint(15, 60)
    runs = [_run(rng, f"shaped-{number}", shape, at, length) for at in range(length)]
    return History(f"shaped-{number}", "shaped", runs[:-1], _planted(rng, runs[-1], change), change)


def _run(rng: Random, job: str, shape: _Shape, at: int, length: int) -> RunSummary:
    ended_at = START + at / shape.pace * DAY + rng.uniform(0, 1800)
    half = length // 2
    grown = shape.trend[0] * min(at, half) + shape.trend[1] * max(at - half, 0)
    weekday = int(ended_at // DAY + 3) % 7
    expected = shape.items * shape.week[weekday] * math.exp(grown)
    items = max(round(expected * math.exp(shape.noise * _tailed(rng))), 1)
    answers = max(round(items * 1.3), 20)
    others = [_share(rng, share, answers) for share in shape.others]
    shares = [max(1 - sum(others), 0.0), *others]
    return RunSummary(
        f"{job}-{at}",
        job,
        ended_at,
        done=answers,
        answers=answers,
        items=items,
        page_size=shape.size * math.exp(0.03 * _tailed(rng)),
        statuses={name: share for name, share in zip(STATUSES, shares, strict=True) if share},
        fields={name: _share(rng, share, min(items, 500)) for name, share in shape.fields.items()},
    )


def _share(rng: Random, share: float, of: int) -> float:
    """A share, counted in `of` objects."""
    return min(max(rng.gauss(share, math.sqrt(share * (1 - share) / of)), 0.0), 1.0)


def _planted(rng: Random, run: RunSummary, change: str) -> RunSummary:
    if change == "half the items":
        return msgspec.structs.replace(run, items=round(run.items * rng.uniform(0.35, 0.55)))
    if change == "an empty field":
        return msgspec.structs.replace(run, fields={**run.fields, "f0": 0.0})
    if change == "login pages":
        share = rng.uniform(0.5, 1.0)
        size = run.page_size * (1 - share) + rng.uniform(1_000, 5_000) * share
        items = round(run.items * (1 - share))
        return msgspec.structs.replace(run, items=items, page_size=size)
    return run
