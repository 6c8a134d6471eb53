"""Add an agent: a one-time token, the command for the new machine, and what became of it.

The token is in the answer to the form and nowhere else. What the page reads again are the tokens
of the last hours, so it can be left and opened again while a machine joins.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any
from urllib.parse import quote

from skep.errors import InvalidInput
from skep.portal.page import Outcome, Page, PageCall, View
from skep.portal.panels import Refused, part
from skep.portal.show.agents import shown_word
from skep.portal.show.commands import command
from skep.wire.api.agents import AgentDetail
from skep.wire.api.tokens import IssuedToken, JoinToken, TokenLine, TokenPage

#: Tokens that are shown, and their age.
RECENT, WANTED = 8, "role:join since:6h"
HOUR = 3600.0
#: Lifetimes that are offered, in hours.
HOURS = ("1", "4", "24")
FIELDS = ("agent", "group", "labels", "hours")


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that must be right: a word of `states`, and a sentence."""

    key: str
    look: str
    text: str


@dataclass(frozen=True, slots=True)
class Joining:
    """A token, the agent that used it, and its checks."""

    line: TokenLine
    agent: str = ""
    word: str = ""
    checks: Sequence[Check] = ()

    @property
    def href(self) -> str:
        return f"/agents/{quote(self.agent, safe='')}"


async def show(call: PageCall) -> Outcome:
    return await _page(call, {})


async def create(call: PageCall) -> Outcome:
    """Make the token and show the command. A wrong value keeps what was typed."""
    try:
        issued = await call.api.tokens.create_join(_wanted(call))
    except InvalidInput as error:
        return await _page(call, {"problem": error.detail}, 400)
    return await _page(call, {"issued": issued})


async def _page(call: PageCall, more: Mapping[str, Any], status: int = 200) -> View:
    issued: IssuedToken | None = more.get("issued")
    data = {
        "issued": issued,
        "problem": "",
        "typed": {name: call.field(name) for name in FIELDS},
        "hours": HOURS,
        "loopback": _is_loopback(call.request.url.hostname or ""),
        "joining": await _joining(call),
        "token_command": command("agent", "token"),
        **more,
    }
    return View("pages/add_agent.html", data, watch=("agents",), every=3, status=status)


def _wanted(call: PageCall) -> JoinToken:
    hours = call.field("hours") or HOURS[0]
    if hours not in HOURS:
        raise InvalidInput(f"{hours[:20]!r} is not one of {', '.join(HOURS)} hours")
    return JoinToken(
        agent=call.field("agent").strip(),
        group=call.field("group").strip(),
        labels=_labels(call.field("labels")),
        seconds=float(hours) * HOUR,
    )


def _labels(text: str) -> dict[str, str]:
    """`name=value` pairs between spaces."""
    found: dict[str, str] = {}
    for pair in text.split():
        name, equals, value = pair.partition("=")
        if not name or not equals:
            raise InvalidInput(f"{pair[:50]!r} is not a label; write name=value")
        found[name] = value
    return found


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


async def _joining(call: PageCall) -> list[Joining] | Refused:
    """The newest tokens with their agents; refused for callers other than admins."""
    found = await part(call.api.tokens.list(TokenPage(RECENT, filter=WANTED)))
    if isinstance(found, Refused):
        return found
    version = await part(call.api.health.version())
    here = "" if isinstance(version, Refused) else version.version
    return list(await asyncio.gather(*(_one(call, line, here) for line in found.items)))


async def _one(call: PageCall, line: TokenLine, here: str) -> Joining:
    name = line.token.used_by
    if not name:
        return Joining(line)
    detail = await part(call.api.agents.show(name))
    if isinstance(detail, Refused):  # it has joined and was not started yet
        return Joining(line, name, "", [_check(call, "started", "wait", "not_started")])
    return Joining(line, name, shown_word(detail), _checks(call, detail, here))


def _checks(call: PageCall, detail: AgentDetail, here: str) -> list[Check]:
    """Reachability and version. The clock is compared on the machine itself, before it joins."""
    who, now_alive = detail.agent.registration, detail.alive
    reach = _check(call, "reach", "done", "reachable", seconds=f"{detail.last_beat_age:.0f}")
    if not detail.agent.has_beaten:
        reach = _check(call, "reach", "wait", "no_beat")
    elif not now_alive:
        reach = _check(call, "reach", "fail", "silent", seconds=f"{detail.last_beat_age:.0f}")
    same = who.version == here
    version = _check(
        call,
        "version",
        "done" if same else "slow",
        "same_version" if same else "other_version",
        agent=who.version or "?",
        center=here,
    )
    return [_check(call, "started", "done", "row"), reach, version]


def _check(call: PageCall, key: str, look: str, text: str, **values: str) -> Check:
    return Check(f"add_agent.check_{key}", look, call.texts.plain(f"add_agent.{text}", **values))


PAGES = (
    Page("add_agent", "/add-agent", show, under="agents"),
    Page("add_agent", "/add-agent", create, method="POST", under="agents"),
)
