"""`polling`: how long does a push wait until the next poll, at an equal poll budget?

Simulated: 10,000 repositories over 30 days, in a Poisson and a bursty world, at three budgets. Each
repository is polled by `skep.mirrors.polling`, by a uniform interval, and by an oracle that knows
the true long-run rates. Nothing is sampled or scaled: every poll is an event. Polls take no time
and do not fail. 60 days of history are known at the start, as after a first clone.
"""

from __future__ import annotations

import math
import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from random import Random
from typing import Any

from bench.figures import Result, neat
from bench.mirrors.push_worlds import DAY, HOUR, WORLDS, rates
from bench.options import Options
from skep.mirrors.due_queue import DueQueue
from skep.mirrors.polling import (
    SHORTEST,
    PollState,
    after_poll,
    may_come_early,
    next_poll,
    plan,
)

#: Bars: delay over that of uniform polling, over that of the oracle, and the use of the budget.
BAR, ORACLE_BAR, BUDGET_BAR = 0.33, 1.2, 0.02
FULL = 10_000
BUDGETS = (20_000, 5_000, 1_250)
DAYS, HISTORY = 30, 60
BEGIN = 20_000 * DAY
PROCESSES = 2


class Fleet:
    """All repositories of one world, polled as the product would."""

    def __init__(self, pushes: Sequence[list[float]], budget: float, random: Random) -> None:
        self._random, self._budget = random, budget
        self._pushes = pushes
        self._seen = [sum(time < BEGIN for time in times) for times in pushes]
        self._states = [
            after_poll(PollState(), times[:seen], BEGIN)
            for times, seen in zip(pushes, self._seen, strict=True)
        ]
        self._host = plan(self._states, BEGIN, budget)
        self._queue = DueQueue(budget, BEGIN)
        self._delay, self._found = 0.0, 0
        for key, state in enumerate(self._states):
            interval = next_poll(state, BEGIN, self._host) - BEGIN
            self._queue.put(key, BEGIN + random.random() * interval, BEGIN)

    def run(self, end: float) -> tuple[float, int]:
        """Mean delay of pushes in seconds, and the polls until `end`. Polls go on for a day, until
        the last pushes are found."""
        polls, hour = 0, BEGIN + HOUR
        while (now := self._queue.next_at()) < end + DAY:
            if now >= hour:
                self._host = plan(self._states, hour, self._budget, self._host)
                hour += HOUR
                continue
            self._poll(now)
            polls += now < end
        return self._delay / self._found, polls

    def _poll(self, now: float) -> None:
        key = self._queue.take(now)
        assert key is not None
        times, old = self._pushes[key], self._seen[key]
        new = old
        while new < len(times) and times[new] <= now:
            self._delay += now - times[new]
            new += 1
        self._seen[key] = new
        self._found += new - old
        state = after_poll(self._states[key], times[old:new], now)
        self._states[key] = state
        due = next_poll(state, now, self._host, self._random.random())
        self._queue.put(key, due, may_come_early(state, due, self._host))


def periodic(pushes: Sequence[list[float]], intervals: Sequence[float], random: Random) -> float:
    """Mean delay in seconds when each repository has a constant interval."""
    delays = []
    for times, interval in zip(pushes, intervals, strict=True):
        phase = random.random() * interval
        delays += [(phase - time) % interval for time in times if time >= BEGIN]
    return math.fsum(delays) / len(delays)


def best_intervals(per_day: Sequence[float], budget: float) -> list[float]:
    """The square-root rule with the true long-run rates, under the bounds of the product."""
    longest = max(DAY, 3 * len(per_day) / budget)
    low, high = 0.0, 1e6
    for _ in range(80):
        price = (low + high) / 2
        intervals = [
            min(max(math.sqrt(2 * price / (rate / DAY)), SHORTEST), longest) for rate in per_day
        ]
        low, high = (price, high) if sum(1 / t for t in intervals) > budget else (low, price)
    return intervals


def cell(world: str, per_hour: int, count: int, days: int, seed: int) -> dict[str, Any]:
    """One world at one budget; the budget of a repository does not depend on their number."""
    random = Random(f"{world} {seed}")
    per_day, end = rates(count, random), BEGIN + days * DAY
    pushes = [WORLDS[world](rate, random, BEGIN - HISTORY * DAY, end) for rate in per_day]
    budget = per_hour / HOUR * count / FULL
    uniform = periodic(pushes, [count / budget] * count, random)
    oracle = periodic(pushes, best_intervals(per_day, budget), random)
    ours, polls = Fleet(pushes, budget, random).run(end)
    return {
        "minutes": neat(ours / 60),
        "uniform_minutes": neat(uniform / 60),
        "oracle_minutes": neat(oracle / 60),
        "ratio": neat(ours / uniform),
        "to_oracle": neat(ours / oracle),
        "budget_used": neat(polls / (budget * days * DAY)),
    }


def run(options: Options) -> Result:
    asked = [(world, budget) for budget in BUDGETS for world in WORLDS]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(PROCESSES, mp_context=context) as pool:
        waits = {
            f"{world}_{budget}": pool.submit(
                cell, world, budget, options.repositories, DAYS, options.seed
            )
            for world, budget in asked
        }
        cells = {name: wait.result() for name, wait in waits.items()}
    return judged(cells, options.repositories)


def judged(cells: dict[str, dict[str, Any]], count: int) -> Result:
    ratio = max(one["ratio"] for one in cells.values())
    to_oracle = max(one["to_oracle"] for one in cells.values())
    off = max(abs(one["budget_used"] - 1) for one in cells.values())
    worst = next(one for one in cells.values() if one["ratio"] == ratio)
    return Result(
        name="polling",
        unit="minutes from push to poll, mean",
        ours=worst["minutes"],
        peer=worst["uniform_minutes"],
        floor=worst["oracle_minutes"],
        ratio=ratio,
        bar=BAR,
        ok=ratio <= BAR and to_oracle <= ORACLE_BAR and off <= BUDGET_BAR,
        meaning="delay over that of uniform polling, worst of six; less is better; "
        "at most 1.2 of an oracle, budget within 2%",
        more={"repositories": count, "to_oracle": to_oracle, "budget_off": neat(off), **cells},
    )
