"""Generates histories of runs, some with a planted change in the last run. For tests and bench.

The histories are of the kinds that jobs have: steady, noisy, weekly, growing, small, sparse, with
optional fields, with unusual runs. Half of a change is in how it is planted, so a change is put on
every kind in turn.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

import msgspec

from skep.model.monitoring.run_summary import RunSummary

DAY = 86_400.0
START = 1_767_225_600.0
CHANGES = ("half the items", "an empty field", "login pages")


@dataclass(frozen=True, slots=True)
class History:
    """The last run is to be judged; `change` names what was planted in it, "" = nothing."""

    job: str
    kind: str
    past: list[RunSummary]
    last: RunSummary
    change: str = ""


@dataclass(frozen=True, slots=True)
class _Kind:
    name: str
    items: float
    noise: float
    #: Share of the items at weekends.
    weekend: float = 1.0
    #: Growth per run.
    growth: float = 0.0
    #: Share of runs without any item.
    empty: float = 0.0
    #: Share of runs that are unusual in the past.
    odd: float = 0.0
    #: Fill rate of an optional field, and how much it varies.
    optional: float = 0.6
    varies: float = 0.05
    missing: float = 0.02


KINDS = (
    _Kind("steady", 1000, 0.02),
    _Kind("noisy", 400, 0.12),
    _Kind("weekly", 2000, 0.05, weekend=0.4),
    _Kind("growing", 300, 0.04, growth=0.01),
    _Kind("small", 12, 0.05),
    _Kind("optional", 500, 0.06, optional=0.35, varies=0.12),
    _Kind("odd", 800, 0.05, odd=0.06),
    _Kind("broken links", 600, 0.08, missing=0.15),
    _Kind("sparse", 60, 0.15, empty=0.08),
    _Kind("large", 50_000, 0.03, weekend=0.8, growth=0.002),
)


def histories(rng: Random, count: int = 200, planted: int = 40) -> list[History]:
    """`planted` of them have a change, spread over kinds of history and of change."""
    chosen = sorted(rng.sample(range(count), planted))
    changes = {number: CHANGES[i % len(CHANGES)] for i, number in enumerate(chosen)}
    return [_history(rng, number, changes.get(number, "")) for number in range(count)]


def _history(rng: Random, number: int, change: str) -> History:
    kind = replace(KINDS[number % len(KINDS)])
    size = rng.uniform(4_000, 200_000)
    job = f"job-{number}"
    runs = [_run(rng, job, kind, size, day) for day in range(rng.randint(20, 60))]
    past, last = runs[:-1], runs[-1]
    past = [_odd(rng, run) if rng.random() < kind.odd else run for run in past]
    return History(job, kind.name, past, _planted(rng, last, change), change)


def _run(rng: Random, job: str, kind: _Kind, size: float, day: int) -> RunSummary:
    ended_at = START + day * DAY + rng.uniform(0, 3600)
    weekend = (3 + day) % 7 >= 5
    expected = kind.items * (1 + kind.growth) ** day * (kind.weekend if weekend else 1.0)
    items = round(expected * rng.lognormvariate(0, kind.noise) + rng.gauss(0, expected**0.5 / 2))
    items = 0 if rng.random() < kind.empty else max(items, 1)
    missing = min(max(rng.gauss(kind.missing, kind.missing / 3), 0), 0.9)
    answers = max(round(max(items, 10) * 1.1), 1)
    optional = min(max(rng.gauss(kind.optional, kind.varies), 0), 1)
    fields = {"title": 1.0, "price": _share(rng, 0.97, items), "stars": optional} if items else {}
    return RunSummary(
        f"{job}-{day}",
        job,
        ended_at,
        done=answers,
        answers=answers,
        items=items,
        page_size=size * rng.lognormvariate(0, 0.05),
        statuses={"200": 1 - missing, "404": missing},
        fields=fields,
    )


def _share(rng: Random, share: float, items: int) -> float:
    return min(max(rng.gauss(share, 0.5 / max(items, 1) ** 0.5 * 0.3), 0), 1)


def _odd(rng: Random, run: RunSummary) -> RunSummary:
    """A run in the past that went wrong: the host was down, or the run was stopped."""
    part = rng.uniform(0.0, 0.4)
    return msgspec.structs.replace(run, items=round(run.items * part))


def _planted(rng: Random, run: RunSummary, change: str) -> RunSummary:
    if change == "half the items":
        return msgspec.structs.replace(run, items=round(run.items * rng.uniform(0.4, 0.55)))
    if change == "an empty field":
        return msgspec.structs.replace(run, fields={**run.fields, "price": 0.0})
    if change == "login pages":
        share = rng.uniform(0.6, 1.0)
        items = round(run.items * (1 - share) * rng.uniform(0, 1))
        size = run.page_size * (1 - share) + rng.uniform(1_500, 6_000) * share
        return msgspec.structs.replace(run, items=items, page_size=size)
    return run
