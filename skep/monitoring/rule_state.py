"""The state of one alert of one rule: pending, firing, ending. A pure state machine.

Time is added up from evaluation to evaluation, each with a limit: a clock that was set, or a
center that was paused, neither starts nor ends an alert early.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from skep.model.monitoring.alerts import AlertRule

#: Longest time between two evaluations that counts, in seconds.
GAP = 60.0
Change = Literal["", "firing", "resolved"]


class Phase(msgspec.Struct, frozen=True):
    """`held`: seconds for which the value was beyond the threshold, or has returned."""

    state: Literal["ok", "pending", "firing", "ending"] = "ok"
    held: float = 0.0
    at: float = 0.0


def breaches(rule: AlertRule, value: float | None) -> bool:
    """Whether a value is at or beyond the threshold; no value is not."""
    if value is None:
        return False
    return value >= rule.threshold if rule.when == "above" else value <= rule.threshold


def has_returned(rule: AlertRule, value: float | None) -> bool:
    """Whether a value is back: beyond `clear`, seen from the threshold."""
    if value is None:
        return True
    if rule.clear is None:
        return not breaches(rule, value)
    return value <= rule.clear if rule.when == "above" else value >= rule.clear


def advance(rule: AlertRule, phase: Phase, value: float | None, now: float) -> tuple[Phase, Change]:
    """The phase after one more evaluation, and whether the alert starts or ends with it."""
    passed = min(max(now - phase.at, 0.0), GAP)
    if phase.state in {"firing", "ending"}:
        return _while_firing(rule, phase, value, now, passed)
    if not breaches(rule, value):
        return Phase("ok", 0.0, now), ""
    held = phase.held + passed if phase.state == "pending" else 0.0
    if held >= rule.duration:
        return Phase("firing", 0.0, now), "firing"
    return Phase("pending", held, now), ""


def _while_firing(
    rule: AlertRule, phase: Phase, value: float | None, now: float, passed: float
) -> tuple[Phase, Change]:
    if not has_returned(rule, value):
        return Phase("firing", 0.0, now), ""
    held = phase.held + passed if phase.state == "ending" else 0.0
    if held >= rule.clear_duration:
        return Phase("ok", 0.0, now), "resolved"
    return Phase("ending", held, now), ""


def problem_of(rule: AlertRule) -> str:
    """Why a rule cannot work; "" = it can. Numbers are in range already."""
    if rule.clear is not None:
        wrong = rule.clear > rule.threshold if rule.when == "above" else rule.clear < rule.threshold
        if wrong:
            side = "at or below" if rule.when == "above" else "at or above"
            return f"clear is {rule.clear:g}; it must be {side} the threshold {rule.threshold:g}"
    return ""
