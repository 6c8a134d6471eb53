"""Alert rules: the list, one rule as a form, delete or reset."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import msgspec

from skep.errors import NotFound
from skep.model.monitoring.alerts import AlertRule, NamedRule
from skep.portal.page import Done, Outcome, Page, PageCall, View
from skep.portal.pages.operate.alerts import tabs_of
from skep.portal.show.acts import Act
from skep.portal.show.cells import code_cell, name_cell, state_cell, text_cell
from skep.portal.show.commands import command
from skep.portal.show.details import pairs_of
from skep.portal.show.forms import Form, typed
from skep.portal.show.numbers import duration, size
from skep.portal.show.tables import Column, Row

_LIST = "/alerts/rules"
#: Measures whose values are bytes.
_BYTES = frozenset({"disk_free"})
COLUMNS = (
    Column("alerts.column_rule"),
    Column("alerts.column_state"),
    Column("alerts.column_measure"),
    Column("alerts.column_when"),
    Column("alerts.column_severity"),
    Column("alerts.column_origin"),
)


async def show(call: PageCall) -> Outcome:
    found = await call.api.alerts.rules()
    data = {
        "columns": COLUMNS,
        "rows": [_row(call, one) for one in found.items],
        "tabs": tabs_of("rules"),
        "may": call.may("operator"),
        "command": command("alerts", "rules"),
    }
    return View("pages/alert_rules.html", data, every=10)


def _row(call: PageCall, one: NamedRule) -> Row:
    rule, href = one.rule, _path(one.name)
    measure = f"{rule.measure} {rule.series}".strip()
    cells = (
        name_cell(one.name, href, rule.subject),
        state_cell("enabled" if rule.enabled else "disabled"),
        code_cell(measure),
        text_cell(_condition(call, rule)),
        state_cell(rule.severity),
        text_cell(call.texts.plain(_origin(one))),
    )
    return Row(one.name, cells, href)


def _condition(call: PageCall, rule: AlertRule) -> str:
    value = size(rule.threshold) if rule.measure in _BYTES else f"{rule.threshold:g}"
    at_once = "" if rule.duration else "_at_once"
    key = f"alerts.when_{rule.when}{at_once}"
    return call.texts.plain(key, value=value, span=duration(rule.duration))


def _origin(one: NamedRule) -> str:
    if not one.builtin:
        return "alerts.origin_own"
    return "alerts.origin_changed" if one.changed else "alerts.origin_builtin"


def _path(name: str) -> str:
    return f"{_LIST}/{quote(name, safe='')}"


async def show_one(call: PageCall) -> Outcome:
    found = await _find(call, call.path["rule"])
    values = msgspec.to_builtins(found.rule)
    data = {
        "name": found.name,
        "form": await _form(call, values),
        "pairs": pairs_of(values),
        "acts": _acts(call, found),
        "origin": _origin(found),
        "may": call.may("operator"),
        "path": _path(found.name),
    }
    return View("pages/alert_rule.html", data, title=found.name)


async def show_new(call: PageCall) -> Outcome:
    form = await _form(call, {})
    data: dict[str, Any] = {"name": "", "form": form, "pairs": [], "acts": [], "origin": ""}
    more = {"may": call.may("operator"), "path": "/alerts/new-rule"}
    title = call.texts.plain("alerts.new_rule")
    return View("pages/alert_rule.html", {**data, **more}, title=title)


async def _find(call: PageCall, name: str) -> NamedRule:
    for one in (await call.api.alerts.rules()).items:
        if one.name == name:
            return one
    raise NotFound(f"there is no alert rule {name[:50]!r}")


async def _form(call: PageCall, values: dict[str, Any]) -> Form:
    return Form.of(json.loads(await call.api.health.openapi()), "AlertRule", values)


def _acts(call: PageCall, found: NamedRule) -> list[Act]:
    if not call.may("operator") or (found.builtin and not found.changed):
        return []
    verb = "reset" if found.builtin else "delete"
    return [
        Act(
            f"alerts.act_{verb}",
            f"{_path(found.name)}/delete",
            destroys=True,
            confirm=f"alerts.confirm_{verb}",
            command=command("alerts", "unset", found.name),
            api_path=f"/api/v1/alert-rules/{quote(found.name, safe='')}",
            method="DELETE",
        )
    ]


async def save(call: PageCall) -> Outcome:
    """Create or replace; the API checks the values."""
    name = call.path.get("rule") or call.field("rule_name").strip()
    given = (await _form(call, {})).read(call.form)
    await call.api.alerts.set_rule(name, typed(given, AlertRule))
    return Done(call.texts.plain("alerts.said_saved", name=name), _path(name))


async def delete(call: PageCall) -> Outcome:
    found = await call.api.alerts.delete_rule(call.path["rule"])
    said = "alerts.said_reset" if found.rule is not None else "alerts.said_deleted"
    return Done(call.texts.plain(said, name=call.path["rule"]), _LIST)


PAGES = (
    Page("alerts", _LIST, show),
    Page("alerts", "/alerts/new-rule", show_new),
    Page("alerts", "/alerts/new-rule", save, method="POST"),
    Page("alerts", "/alerts/rules/{rule}", show_one),
    Page("alerts", "/alerts/rules/{rule}", save, method="POST"),
    Page("alerts", "/alerts/rules/{rule}/delete", delete, method="POST"),
)
