"""One host: its pace, why it is paused, its results, and the rule that an operator set."""

from __future__ import annotations

import json
from urllib.parse import quote

from skep.errors import InvalidInput
from skep.model.hosts.host import SiteRule, SiteView
from skep.portal.page import Done, Outcome, Page, PageCall, View
from skep.portal.panels import part
from skep.portal.show.acts import Act
from skep.portal.show.commands import command
from skep.portal.show.details import Pair
from skep.portal.show.forms import Form, FormField
from skep.portal.show.hosts import host_concurrency, host_rate, host_word
from skep.portal.show.numbers import NONE, duration, number, share, size

#: The field `robots` has three values: obey, ignore, and the default.
_ROBOTS = {"yes": True, "no": False}


async def show(call: PageCall) -> Outcome:
    view = await call.api.hosts.show(call.path["host"])
    data = {
        "host": view,
        "word": host_word(view, call.now),
        "why": await part(call.api.why.host(view.host)),
        "figures": _figures(view),
        "facts": _facts(call, view),
        "has_rule": view.rule != SiteRule(),
        "form": await rule_form(call, view.rule) if call.may("operator") else None,
        "acts": _acts(call, view),
    }
    return View("pages/host.html", data, title=view.host, every=5)


def _figures(view: SiteView) -> list[Pair]:
    return [
        Pair("host.rate", host_rate(view)),
        Pair("host.concurrency", host_concurrency(view)),
        Pair("host.requests", number(view.requests)),
        Pair("host.failed", share(view.failed, view.requests), attention=_mostly_failed(view)),
        Pair("host.refused", number(view.refused), attention=view.refused > 0),
        Pair("host.latency", duration(view.latency or None)),
        Pair("host.received", size(view.received)),
    ]


def _mostly_failed(view: SiteView) -> bool:
    return 2 * view.failed > view.requests > 0


def _facts(call: PageCall, view: SiteView) -> list[Pair]:
    texts, rule = call.texts, view.rule
    robots = view.pace.robots if view.pace else False
    obeyed = texts.plain("host.robots_obeyed" if robots else "host.robots_ignored")
    default = texts.plain("host.default")
    return [
        Pair("host.fact_rate", default if rule.rate is None else f"{number(rule.rate)}/s"),
        Pair(
            "host.fact_concurrency",
            default if rule.concurrency is None else number(rule.concurrency),
        ),
        Pair("host.fact_robots", default if rule.robots is None else _word(rule.robots)),
        Pair("host.fact_obeyed", obeyed),
        Pair("host.fact_delay", duration(view.crawl_delay) if view.crawl_delay else NONE),
        Pair(
            "host.fact_learned",
            duration(view.pace.delay) if view.pace and view.pace.delay else NONE,
        ),
        Pair("host.fact_barred", number(view.barred)),
        Pair("host.fact_deferred", number(view.deferred)),
    ]


def _word(value: bool) -> str:
    return next(word for word, meant in _ROBOTS.items() if meant is value)


async def rule_form(call: PageCall, rule: SiteRule) -> Form:
    """The options of a rule with their present values. `robots` is a choice, because a switch has
    no place for "the default"."""
    document = json.loads(await call.api.health.openapi())
    values = {"rate": rule.rate, "concurrency": rule.concurrency}
    plain = Form.of(document, "SiteRule", values, only=("rate", "concurrency"))
    present = "" if rule.robots is None else _word(rule.robots)
    help_text = document["components"]["schemas"]["SiteRule"]["properties"]["robots"]["description"]
    robots = FormField("robots", "choice", present, help_text, choices=tuple(_ROBOTS))
    return Form([*plain.fields, robots])


def _acts(call: PageCall, view: SiteView) -> list[Act]:
    if not call.may("operator"):
        return []
    path = f"/{quote(view.host, safe='')}"
    return [
        Act(
            "host.act_clear",
            f"/hosts{path}/clear",
            confirm="host.confirm_clear",
            command=command("sites", "clear", view.host),
            api_path=f"/api/v1/sites{path}",
            method="DELETE",
        )
    ]


async def set_rule(call: PageCall) -> Outcome:
    """Replace the rule of the host; an empty field has its default."""
    host = call.path.get("host") or call.field("host").strip()
    if not host:
        raise InvalidInput("a host is needed, such as example.org")
    given = (await rule_form(call, SiteRule())).read(call.form)
    robots = given.get("robots", "")
    if robots and robots not in _ROBOTS:
        raise InvalidInput(f"robots: {robots[:20]!r} is not yes or no")
    rule = SiteRule(given.get("rate"), given.get("concurrency"), _ROBOTS.get(robots))
    view = await call.api.hosts.put(host, rule)
    return Done(call.texts.plain("host.said_rule", host=view.host), _path(view.host))


async def clear(call: PageCall) -> Outcome:
    view = await call.api.hosts.clear(call.path["host"])
    return Done(call.texts.plain("host.said_clear", host=view.host), _path(view.host))


def _path(host: str) -> str:
    return f"/hosts/{quote(host, safe='')}"


PAGES = (
    Page("host", "/hosts/{host}", show, under="hosts"),
    Page("host", "/hosts", set_rule, method="POST", under="hosts"),
    Page("host", "/hosts/{host}/rule", set_rule, method="POST", under="hosts"),
    Page("host", "/hosts/{host}/clear", clear, method="POST", under="hosts"),
)
