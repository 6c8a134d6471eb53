"""Built-in alert rules, and the rules in force: built-in ones, changed by those of users. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping

from skep.model.monitoring.alerts import RETURNED, AlertRule, NamedRule
from skep.model.monitoring.series import BY_NAME
from skep.monitoring.rule_state import problem_of as limits_problem

GIB = 2.0**30
BUILTIN: dict[str, AlertRule] = {
    "failure_rate": AlertRule("failure_rate", 0.5, clear=0.3, duration=300.0, clear_duration=120.0),
    "silent_job": AlertRule("silent_job", 900.0),
    "stale_run": AlertRule("stale_run", 1.0, duration=1800.0),
    "dead_agent": AlertRule("dead_agent", 60.0, duration=240.0),
    "disk_free": AlertRule(
        "disk_free", 2 * GIB, "below", clear=3 * GIB, duration=60.0, severity="critical"
    ),
    "lane_stuck": AlertRule("lane_stuck", 1.0, duration=600.0, clear=0.95),
    "silent_failure": AlertRule("silent_failure", 1.0),
}


def in_force(stored: Mapping[str, AlertRule]) -> list[NamedRule]:
    """All rules, sorted by name."""
    names = sorted({*BUILTIN, *stored})
    return [
        NamedRule(
            name,
            stored.get(name) or BUILTIN[name],
            builtin=name in BUILTIN,
            changed=name in BUILTIN and name in stored,
        )
        for name in names
    ]


def problem_of(name: str, rule: AlertRule) -> str:
    """Why a rule cannot be stored; "" = it can."""
    numbers = (rule.threshold, rule.clear or 0.0, rule.duration, rule.clear_duration, rule.window)
    if not all(map(math.isfinite, numbers)):
        return "a number is not finite; use ordinary numbers"
    return _name_problem(name, rule) or _series_problem(rule) or limits_problem(rule)


def _name_problem(name: str, rule: AlertRule) -> str:
    if name in BUILTIN and rule.measure != BUILTIN[name].measure:
        return f"{name} is built in and watches {BUILTIN[name].measure}; choose another name"
    if name == RETURNED:
        return f"{name} is the kind of alerts of failure groups; choose another name"
    if rule.measure == "silent_failure" and name != rule.measure:
        return f"the measure {rule.measure} exists once; change the rule {rule.measure} instead"
    return ""


def _series_problem(rule: AlertRule) -> str:
    if rule.measure == "series" and rule.series not in BY_NAME:
        return f"{rule.series!r} is not a series; use one of {', '.join(sorted(BY_NAME))}"
    if rule.measure != "series" and (rule.series or rule.label):
        return f"`series` and `label` belong to the measure series, not to {rule.measure}"
    return ""
