"""Checks the proxies (`exits`) and sessions of a run when it is opened. Pure; run by centers.

Errors name the field. They never repeat the value of a proxy, because it may contain a password.
"""

from __future__ import annotations

from collections.abc import Callable

from skep.downloaders.pattern import compiled
from skep.downloaders.proxies import parse_proxy
from skep.errors import InvalidInput
from skep.model.downloader_kinds import downloader_kind, names_with
from skep.model.proxies import ExitRules, SessionRules, session_rules
from skep.model.run import RunSettings

CheckHeader = Callable[[str, str], None]


def check_proxies(settings: RunSettings, check_header: CheckHeader) -> None:
    """Raises InvalidInput for rules that no agent can apply."""
    exits, sessions = settings.exits, session_rules(settings.sessions)
    if exits is None and sessions is None:
        return
    if not downloader_kind(settings.downloader).uses_proxies:
        known = names_with("uses_proxies")
        raise InvalidInput(f"exits and sessions need one of the downloaders {known}")
    if exits is not None:
        _check_proxies(exits)
    if sessions is not None:
        _check_sessions(sessions, check_header)


def _check_proxies(rules: ExitRules) -> None:
    if rules.proxies and rules.redial:
        raise InvalidInput("exits: proxies and redial exclude each other; remove one")
    if not rules.proxies and not rules.redial:
        raise InvalidInput("exits: set proxies or redial")
    if rules.redial and not rules.switch_when and not rules.switch_after:
        raise InvalidInput("exits.redial needs switch_when or switch_after; set one of them")
    for place, url in enumerate(rules.proxies):
        parse_proxy(url, f"exits.proxies[{place}]")
    compiled(rules.switch_when, "exits.switch_when")


def _check_sessions(rules: SessionRules, check_header: CheckHeader) -> None:
    compiled(rules.blocked_when, "sessions.blocked_when")
    for headers in rules.headers:
        for name, value in headers.items():
            check_header(name, value)
