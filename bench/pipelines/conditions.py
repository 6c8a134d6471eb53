"""Pipelines: a compiled condition against a plain lambda of Python, in the same process.

Later figures of a pipeline (messages between servers, the pool) will join this one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from bench.figures import Figure, Result, Wrong, alternate
from bench.options import Options
from bench.stopwatch import Stopwatch

#: Evaluations of one condition in one sample; a sample is short, so that subjects alternate often.
EVALUATIONS = 200_000
SAMPLES_PER_ROUND = 4
BAR = 0.6
Message = dict[str, Any]
Condition = Callable[[Message], object]

#: Text of the condition -> the same as a person would write it in Python.
CONDITIONS: dict[str, Condition] = {
    "score >= 50": lambda m: m["score"] >= 50,
    'event == "click"': lambda m: m["event"] == "click",
    'event == "click" and score >= 50 and price < 9.5 and geo.country == "de"': lambda m: (
        m["event"] == "click"
        and m["score"] >= 50
        and m["price"] < 9.5
        and m["geo"]["country"] == "de"
    ),
}


def messages() -> list[Message]:
    """A hundred messages of twenty fields; each condition is true for about half of them."""
    rest = {f"field{number}": number for number in range(16)}
    return [
        {
            **rest,
            "score": number,
            "event": "click" if number % 2 else "view",
            "price": number / 10,
            "geo": {"country": "de" if number % 3 else "fr"},
        }
        for number in range(100)
    ]


def timed(condition: Condition) -> dict[str, float]:
    """Evaluations per second of CPU time."""
    sample = messages()
    watch = Stopwatch()
    with watch:
        for _ in range(EVALUATIONS // len(sample)):
            for message in sample:
                condition(message)
    return {"rate": EVALUATIONS / watch.cpu}


def compiled(text: str, plain: Condition) -> Condition:
    """The condition as a pipeline compiles it; raises Wrong if the two disagree."""
    from skep.pipelines.expressions.expression import Expression
    from skep.runtime.clock import SystemClock

    made = Expression(text, SystemClock()).test
    if any(made(message) is not plain(message) for message in messages()):
        raise Wrong(f"{text} and its lambda disagree")
    return made


def best(figure: Figure) -> float:
    """Other load on the machine only ever slows a sample down."""
    return figure.spread[1]


def run(options: Options) -> Result:
    rates: dict[str, dict[str, float]] = {}
    for text, plain in CONDITIONS.items():
        subjects = {"ours": partial(timed, compiled(text, plain)), "lambda": partial(timed, plain)}
        found = alternate(subjects, options.rounds * SAMPLES_PER_ROUND)
        ours, floor = best(found["ours"]["rate"]), best(found["lambda"]["rate"])
        rates[text] = {"ours": ours, "lambda": floor, "ratio": ours / floor}
    worst = min(rates.values(), key=lambda one: one["ratio"])
    return Result(
        name="pipeline",
        unit="evaluations of a condition per second of CPU time",
        ours=worst["ours"],
        peer=None,
        floor=worst["lambda"],
        ratio=worst["ratio"],
        bar=BAR,
        ok=worst["ratio"] >= BAR,
        meaning="compiled condition against a plain lambda, the slowest of three; more is better",
        more={"predicate": round(worst["ratio"], 3), "conditions": _told(rates)},
    )


def _told(rates: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
    return {text: {k: float(f"{v:.4g}") for k, v in one.items()} for text, one in rates.items()}
