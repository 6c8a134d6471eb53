"""Alert rules, and what people do with alerts: types and routes."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from skep.model.monitoring.alerts import Alert, AlertRule, NamedRule
from skep.wire.api.caller import Resource
from skep.wire.api.route import Route


class RuleList(msgspec.Struct):
    """Built-in rules and those of users, by name."""

    items: list[NamedRule]


class DeletedRule(msgspec.Struct):
    """Whether the rule existed, and the built-in rule that applies again."""

    deleted: bool
    #: The built-in rule that applies again; null = there is none.
    rule: NamedRule | None = None


class WhichAlert(msgspec.Struct, forbid_unknown_fields=True):
    """One alert."""

    kind: Annotated[str, Meta(min_length=1, max_length=32)]
    subject: Annotated[str, Meta(max_length=100)]


class MuteAlert(msgspec.Struct, forbid_unknown_fields=True):
    """An alert that causes no notices for a time."""

    kind: Annotated[str, Meta(min_length=1, max_length=32)]
    subject: Annotated[str, Meta(max_length=100)]
    #: End, in seconds since the epoch; 0 = end the mute now.
    until: Annotated[float, Meta(ge=0, le=1e11)]


class AlertView(msgspec.Struct):
    """An alert, and its state as people see it."""

    #: firing, acknowledged, muted or resolved.
    state: str
    #: The alert.
    alert: Alert


LIST_ALERT_RULES = Route("list_alert_rules", "GET", "/api/v1/alert-rules", RuleList)
SET_ALERT_RULE = Route(
    "set_alert_rule",
    "PUT",
    "/api/v1/alert-rules/{rule}",
    NamedRule,
    takes=AlertRule,
    example={"measure": "failure_rate", "threshold": 0.4, "clear": 0.2, "duration": 600},
)
DELETE_ALERT_RULE = Route("delete_alert_rule", "DELETE", "/api/v1/alert-rules/{rule}", DeletedRule)
ACKNOWLEDGE_ALERT = Route(
    "acknowledge_alert",
    "POST",
    "/api/v1/alerts/acknowledge",
    AlertView,
    takes=WhichAlert,
    example={"kind": "disk_full", "subject": "main"},
)
MUTE_ALERT = Route(
    "mute_alert",
    "POST",
    "/api/v1/alerts/mute",
    AlertView,
    takes=MuteAlert,
    example={"kind": "disk_full", "subject": "main", "until": 0},
)


class AlertsClient(Resource):
    """Calls the routes of this file."""

    async def rules(self) -> RuleList:
        """Alert rules."""
        return await self._caller.call(LIST_ALERT_RULES)

    async def set_rule(self, name: str, rule: AlertRule) -> NamedRule:
        """Create or replace a rule."""
        return await self._caller.call(SET_ALERT_RULE, name, body=rule)

    async def delete_rule(self, name: str) -> DeletedRule:
        """Delete a rule; a built-in one applies again as it was."""
        return await self._caller.call(DELETE_ALERT_RULE, name)

    async def acknowledge(self, body: WhichAlert) -> AlertView:
        """Note that a person takes care of an alert."""
        return await self._caller.call(ACKNOWLEDGE_ALERT, body=body)

    async def mute(self, body: MuteAlert) -> AlertView:
        """Send no notices of an alert for a time."""
        return await self._caller.call(MUTE_ALERT, body=body)
