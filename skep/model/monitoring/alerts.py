"""Alert rules and alerts. Pure data, used by centers and the command line."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

#: Values that a rule can watch; `monitoring/measures.py` reads them.
Measure = Literal[
    "failure_rate",
    "silent_job",
    "stale_run",
    "dead_agent",
    "disk_free",
    "lane_stuck",
    "silent_failure",
    "series",
]
AlertStateName = Literal["firing", "acknowledged", "muted", "resolved"]
Severity = Literal["info", "warning", "critical"]

RULE_NAME = r"^[a-z][a-z0-9_]{0,31}$(?!\n)"
RuleName = Annotated[str, Meta(pattern=RULE_NAME)]
#: Kind of the alert of a failure group that returns; its state is that of the group.
RETURNED = "failure_returned"
#: Longest subject of an alert; longer ones are cut.
SUBJECT_LIMIT = 100
DETAIL_LIMIT = 2000
#: Rules of users, the built-in ones not counted.
RULES_LIMIT = 200
Level = Annotated[float, Meta(ge=-1e15, le=1e15)]
Duration = Annotated[float, Meta(ge=0, le=86_400 * 7)]


class AlertRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A threshold over one measure. An alert exists for each subject that crosses it."""

    #: The value that the rule watches.
    measure: Measure
    #: The alert starts at this value.
    threshold: Level
    #: `above`: the value is at or over the threshold; `below`: at or under it.
    when: Literal["above", "below"] = "above"
    #: The alert ends when the value has returned beyond this one; null = the threshold.
    clear: Level | None = None
    #: Seconds for which the value must stay beyond the threshold.
    duration: Duration = 0.0
    #: Seconds for which the value must have returned.
    clear_duration: Duration = 0.0
    #: Name of the series; only with `measure: series`.
    series: Annotated[str, Meta(max_length=64)] = ""
    #: Label in that series; empty = all labels together.
    label: Annotated[str, Meta(max_length=100)] = ""
    #: Seconds of the past that the value covers, where the measure is an average.
    window: Annotated[float, Meta(ge=10, le=86_400)] = 300.0
    #: Only subjects with this beginning (a job, run, agent or center); empty = all.
    subject: Annotated[str, Meta(max_length=100)] = ""
    #: How urgent its alerts are.
    severity: Severity = "warning"
    enabled: bool = True
    #: Whether its alerts are sent by webhook and mail.
    notify: bool = True


class NamedRule(msgspec.Struct, frozen=True):
    """A rule as it is stored or built in."""

    #: Name of the rule, and kind of its alerts.
    name: str
    #: Its thresholds.
    rule: AlertRule
    #: Part of Skep; deleting it restores its defaults.
    builtin: bool = False
    #: A built-in rule that was changed.
    changed: bool = False


class AlertFacts(msgspec.Struct, frozen=True):
    """What is always known about an alert: a kind (often the name of a rule) and a subject."""

    kind: str
    subject: str
    detail: str
    #: How often the condition was reported.
    times: int
    first_at: float
    last_at: float


class Alert(AlertFacts, frozen=True):
    """One condition, as it is stored."""

    #: `firing` or `resolved` as stored; acknowledged and muted are derived from the times.
    state: str = "firing"
    #: info, warning or critical.
    severity: str = "warning"
    #: Raised by a rule, not by an event.
    by_rule: bool = False
    changed_at: float = 0.0
    #: Rises with each change of the state.
    changes: int = 1
    #: When a user acknowledged it; 0 = not acknowledged.
    acknowledged_at: float = 0.0
    #: The user who acknowledged it.
    acknowledged_by: str = ""
    #: No notices are sent before this time; 0 = not muted.
    muted_until: float = 0.0

    def shown_state(self, now: float) -> AlertStateName:
        """The state as people see it."""
        if self.state == "resolved":
            return "resolved"
        if self.muted_until > now:
            return "muted"
        return "acknowledged" if self.acknowledged_at else "firing"


class AlertChange(msgspec.Struct, frozen=True):
    """A rule's alert starts or ends."""

    kind: str
    subject: str
    state: Literal["firing", "resolved"]
    detail: str
    severity: str = "warning"
    #: Whether the change is told; False = it only shows in the list.
    notify: bool = True
