"""`skep alerts`: lists alerts, acknowledges and mutes them, and manages alert rules."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from skep.cli.commands.operate.storage import size
from skep.cli.terminal.center_calls import ask
from skep.cli.terminal.center_options import calls_center, listing_group
from skep.cli.terminal.filters import FilterCommand, ListQuery, filter_options, no_match, show_page
from skep.cli.terminal.line_wrapping import wide_option
from skep.cli.terminal.options import json_option
from skep.cli.terminal.output import age, show, show_json, table
from skep.embed.center_address import CenterAddress
from skep.runtime.clock import SystemClock

if TYPE_CHECKING:
    from skep.model.monitoring.alerts import AlertRule, NamedRule
    from skep.wire.api.center import AlertLine, Alerts
    from skep.wire.client.api import CenterApi

HEAD = ("STATE", "KIND", "SUBJECT", "TIMES", "SINCE", "DETAIL")
RULE_HEAD = ("RULE", "MEASURE", "THRESHOLD", "CLEAR", "FOR", "SEVERITY", "STATE")
MEASURES = (
    *("failure_rate", "silent_job", "stale_run", "dead_agent"),
    *("disk_free", "lane_stuck", "silent_failure", "series"),
)
#: The list without a filter.
_ALL = ListQuery("alerts", (), None, "", 100)
#: Measures whose values are durations.
_IN_SECONDS = {"silent_job", "dead_agent"}
_UNITS = {"s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}


def _seconds(_: object, __: object, text: str | None) -> float | None:
    """`30min`, `2h` or `3d`, or a number of seconds."""
    if text is None:
        return None
    found = re.fullmatch(r"(\d{1,9}(?:\.\d+)?) ?(s|min|m|h|d|w)?", text, re.ASCII)
    if not found:
        raise click.BadParameter(f"{text!r} is not a duration; write 30min, 2h or 3d")
    return float(found[1]) * _UNITS[found[2] or "s"]


@listing_group("alerts", lambda reach, as_json: _list(reach, "open", as_json))
def command() -> None:
    """List alerts; acknowledge or mute them; show and change alert rules."""


@command.command("ls", cls=FilterCommand)
@filter_options("alerts", 100)
@click.option("--all", "everything", is_flag=True, help="Resolved alerts, too.")
@wide_option
@json_option
@calls_center
def ls(reach: CenterAddress, query: ListQuery, everything: bool, as_json: bool) -> None:
    """List alerts that are not resolved, newest first; with a filter, those that match.

    For example: `skep alerts ls --all kind:disk* since:7d`
    """
    _list(reach, "" if everything else "open", as_json, query)


def _list(reach: CenterAddress, state: Any, as_json: bool, query: ListQuery = _ALL) -> None:
    answer = ask(reach, lambda api: _alerts(api, state, query))
    if as_json:
        show_json(answer)
        return
    missing = no_match(query, answer, alerts_table([]))
    text = alerts_table(answer.lines()) if answer.items else missing
    show_page(text, answer, len(answer.items))


async def _alerts(api: CenterApi, state: Any, query: ListQuery) -> Alerts:
    from skep.wire.api.center import WhichAlerts

    return await query.find(api, api.center.alerts, WhichAlerts, state=state)


def alerts_table(lines: Sequence[AlertLine]) -> str:
    """As text."""
    if not lines:
        return "no alerts; `skep alerts rules` lists what is watched"
    now = SystemClock().now()
    rows = [
        (one.state, one.kind, one.subject, one.times, age(now - one.first_at), one.detail)
        for one in lines
    ]
    return table(HEAD, rows, spare=("TIMES", "SINCE"))


@command.command("ack")
@click.argument("kind")
@click.argument("subject")
@json_option
@calls_center
def ack(reach: CenterAddress, kind: str, subject: str, as_json: bool) -> None:
    """Acknowledge an alert: a person takes care of it."""
    from skep.wire.api.monitoring.alerts import WhichAlert

    view = ask(reach, lambda api: api.alerts.acknowledge(WhichAlert(kind, subject)))
    show_json(view) if as_json else show(f"{kind} {subject}: {view.state}")


@command.command("mute")
@click.argument("kind")
@click.argument("subject")
@click.option(
    "--for", "seconds", default="1h", callback=_seconds, help="Duration: 30min, 2h or 3d."
)
@click.option("--off", is_flag=True, help="End the mute now.")
@json_option
@calls_center
def mute(
    reach: CenterAddress, kind: str, subject: str, seconds: float, off: bool, as_json: bool
) -> None:
    """Send no notices of an alert for a time; it stays in the list."""
    from skep.wire.api.monitoring.alerts import MuteAlert

    until = 0.0 if off else SystemClock().now() + seconds
    view = ask(reach, lambda api: api.alerts.mute(MuteAlert(kind, subject, until)))
    show_json(view) if as_json else show(f"{kind} {subject}: {view.state}")


@command.command("rules")
@wide_option
@json_option
@calls_center
def rules(reach: CenterAddress, as_json: bool) -> None:
    """List alert rules."""
    answer = ask(reach, lambda api: api.alerts.rules())
    show_json(answer) if as_json else show(rules_table(answer.items))


def rules_table(named: Sequence[NamedRule]) -> str:
    """As text."""
    rows = [_rule_row(one) for one in named]
    return table(RULE_HEAD, rows, spare=("CLEAR", "SEVERITY"))


def _value(rule: AlertRule, value: float) -> str:
    """In the unit of what the rule measures; a series has its own."""
    if rule.measure == "disk_free":
        return size(value)
    return age(value) if rule.measure in _IN_SECONDS else f"{value:g}"


def _rule_row(named: NamedRule) -> tuple[object, ...]:
    rule = named.rule
    state = "changed" if named.changed else "built-in" if named.builtin else "own"
    return (
        named.name,
        f"{rule.measure} {rule.series}".strip(),
        f"{'>=' if rule.when == 'above' else '<='} {_value(rule, rule.threshold)}",
        "-" if rule.clear is None else _value(rule, rule.clear),
        age(rule.duration) if rule.duration else "at once",
        rule.severity,
        state if rule.enabled else f"{state}, off",
    )


@command.command("set")
@click.argument("rule")
@click.option("--measure", type=click.Choice(MEASURES), help="What a new rule watches.")
@click.option("--threshold", type=float, help="The alert starts at this value.")
@click.option("--below", is_flag=True, default=None, help="It starts at or under the threshold.")
@click.option("--clear", type=float, help="The alert ends beyond this value.")
@click.option("--for", "duration", callback=_seconds, help="Duration: 30min, 2h or 3d.")
@click.option("--series", help="Name of the series, with --measure series.")
@click.option("--label", help="Label of the series; default: all together.")
@click.option("--window", callback=_seconds, help="Time that the value covers.")
@click.option("--subject", help="Only subjects with this beginning.")
@click.option(
    "--severity",
    type=click.Choice(("info", "warning", "critical")),
    help="How urgent its alerts are.",
)
@click.option("--on/--off", "enabled", default=None, help="Whether it is evaluated.")
@click.option(
    "--notify/--quiet", default=None, help="Whether its alerts are sent by webhook and mail."
)
@json_option
@calls_center
def set_rule(reach: CenterAddress, rule: str, below: bool, as_json: bool, **given: Any) -> None:
    """Create or change an alert rule. Options that are not given stay as they are."""
    from msgspec.structs import replace

    from skep.model.monitoring.alerts import AlertRule

    changes = {name: value for name, value in given.items() if value is not None}
    if below:
        changes["when"] = "below"
    known = {one.name: one.rule for one in ask(reach, lambda api: api.alerts.rules()).items}
    if rule not in known and not {"measure", "threshold"} <= changes.keys():
        raise click.UsageError(f"{rule!r} is a new rule; give --measure and --threshold")
    made = replace(known[rule], **changes) if rule in known else AlertRule(**changes)
    answer = ask(reach, lambda api: api.alerts.set_rule(rule, made))
    show_json(answer) if as_json else show(rules_table([answer]))


@command.command("unset")
@click.argument("rule")
@json_option
@calls_center
def unset(reach: CenterAddress, rule: str, as_json: bool) -> None:
    """Delete an alert rule; a built-in rule applies again as it was."""
    answer = ask(reach, lambda api: api.alerts.delete_rule(rule))
    if as_json:
        show_json(answer)
    elif answer.rule is not None:
        show(f"{rule} is as it was built in")
    else:
        show(f"deleted {rule}")
