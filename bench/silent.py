"""Silent failures: of 200 histories with 40 planted changes, how many are found?

Two generators make the histories: one of simple kinds of jobs, one with weekly patterns, trends
and heavy tails. No work is timed: the figures are counts. Every seed of both must meet the bars.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from bench.figures import Figure, Result
from bench.options import Options

if TYPE_CHECKING:
    from skep.testing.doubles.run_histories import History

#: Bars: changes that are found, and false alarms.
FOUND, FALSE = 36, 4


def counted(make: Callable[[Random], list[History]], seed: int) -> dict[str, float]:
    """Changes that were found, and false alarms."""
    from skep.monitoring.silent_failure import findings

    all_of_them = [(one, bool(findings(one.last, one.past))) for one in make(Random(seed))]
    found = sum(alarm for one, alarm in all_of_them if one.change)
    false = sum(alarm for one, alarm in all_of_them if not one.change)
    return {"found": found, "false_alarms": false}


def run(options: Options) -> Result:
    from skep.testing.doubles.run_histories import histories
    from skep.testing.doubles.shaped_histories import shaped_histories

    seeds = range(options.seed, options.seed + options.rounds)
    makers = {"plain": histories, "shaped": shaped_histories}
    samples = {name: [counted(make, seed) for seed in seeds] for name, make in makers.items()}
    worst = min(one["found"] for found in samples.values() for one in found)
    most = max(one["false_alarms"] for found in samples.values() for one in found)
    more = {
        f"{name}_{what}": _told(found, what) for name, found in samples.items() for what in _WHAT
    }
    return Result(
        name="silent",
        unit="planted changes that were found, of 40, in the worst seed",
        ours=worst,
        peer=None,
        floor=None,
        ratio=worst,
        bar=FOUND,
        ok=worst >= FOUND and most <= FALSE,
        meaning="changes found in 200 generated histories; more is better; false alarms: at most 4",
        more={**more, "most_false_alarms": most, "seeds": list(seeds)},
    )


_WHAT = ("found", "false_alarms")


def _told(samples: list[dict[str, float]], what: str) -> object:
    return Figure(tuple(one[what] for one in samples)).told()
