"""Alert rules, and the acknowledgement and muting of alerts. Run by centers."""

from __future__ import annotations

import re

from skep.center.http.authentication import Role
from skep.center.http.endpoint import Call, Endpoint
from skep.errors import Conflict, InvalidInput, NotFound
from skep.model.monitoring.alerts import RULE_NAME, RULES_LIMIT, Alert, AlertRule, NamedRule
from skep.monitoring.rules import BUILTIN, in_force, problem_of
from skep.wire.api.monitoring.alerts import (
    ACKNOWLEDGE_ALERT,
    DELETE_ALERT_RULE,
    LIST_ALERT_RULES,
    MUTE_ALERT,
    SET_ALERT_RULE,
    AlertView,
    DeletedRule,
    MuteAlert,
    RuleList,
    WhichAlert,
)

#: Longest mute, in seconds.
MUTED = 366 * 86_400.0
_RULE = {"rule": {"type": "string", "pattern": RULE_NAME.removesuffix(r"(?!\n)")}}


async def list_rules(call: Call) -> RuleList:
    """Built-in rules and those of users."""
    return RuleList(in_force(await call.services.store.monitoring.rules.all()))


async def set_rule(call: Call) -> NamedRule:
    """Create or replace a rule."""
    name, rule = call.path["rule"], call.body
    _check_name(name)
    if problem := problem_of(name, rule):
        raise InvalidInput(f"rule {name}: {problem}")
    services = call.services
    await services.store.monitoring.rules.save(name, rule, RULES_LIMIT, services.clock.now())
    return _named(name, rule)


def _named(name: str, rule: AlertRule) -> NamedRule:
    return NamedRule(name, rule, builtin=name in BUILTIN, changed=name in BUILTIN)


def _check_name(name: str) -> None:
    if not re.fullmatch(RULE_NAME, name):
        raise InvalidInput(
            f"{name[:60]!r} is not a name of a rule; use a small letter, then up to 31 small"
            " letters, digits and underscores"
        )


async def delete_rule(call: Call) -> DeletedRule:
    """Delete a rule; its alerts end. A built-in rule applies again as it was."""
    name = call.path["rule"]
    _check_name(name)
    deleted = await call.services.store.monitoring.rules.delete(name)
    if not deleted and name not in BUILTIN:
        raise NotFound(f"there is no alert rule {name!r}; `skep alerts rules` lists them")
    rule = NamedRule(name, BUILTIN[name], builtin=True) if name in BUILTIN else None
    return DeletedRule(deleted, rule)


async def acknowledge(call: Call) -> AlertView:
    """Note that a person takes care of it."""
    which: WhichAlert = call.body
    services = call.services
    by, now = call.who.subject or str(call.who.role), services.clock.now()
    states = services.store.monitoring.alerts
    return _view(call, await states.acknowledge(which.kind, which.subject, by, now))


async def mute(call: Call) -> AlertView:
    """Send no notices until a time."""
    asked: MuteAlert = call.body
    now = call.services.clock.now()
    if asked.until and not now < asked.until <= now + MUTED:
        raise Conflict(
            f"until is {asked.until:g}, and now is {now:.0f}; use a time within the next year, or 0"
            " to end the mute"
        )
    states = call.services.store.monitoring.alerts
    return _view(call, await states.mute(asked.kind, asked.subject, asked.until))


def _view(call: Call, alert: Alert) -> AlertView:
    return AlertView(alert.shown_state(call.services.clock.now()), alert)


ENDPOINTS = (
    Endpoint(LIST_ALERT_RULES, Role.VIEWER, list_rules, "List alert rules", tag="monitoring"),
    Endpoint(
        SET_ALERT_RULE,
        Role.OPERATOR,
        set_rule,
        "Create or replace an alert rule",
        errors=(InvalidInput, Conflict),
        tag="monitoring",
        parameters=_RULE,
    ),
    Endpoint(
        DELETE_ALERT_RULE,
        Role.OPERATOR,
        delete_rule,
        "Delete an alert rule",
        errors=(InvalidInput, NotFound),
        tag="monitoring",
        parameters=_RULE,
        notes="A built-in rule that was changed applies again as it was.",
    ),
    Endpoint(
        ACKNOWLEDGE_ALERT,
        Role.OPERATOR,
        acknowledge,
        "Acknowledge an alert",
        errors=(NotFound,),
        tag="monitoring",
    ),
    Endpoint(
        MUTE_ALERT,
        Role.OPERATOR,
        mute,
        "Mute an alert until a time",
        errors=(Conflict, NotFound),
        tag="monitoring",
    ),
)
