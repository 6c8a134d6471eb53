"""Proxies, redials and sessions of a run. Pure data; sent to agents with a run.

Checked when the run is opened (`skep.jobs.request_validation`). Only agents get the logins of
proxies: others get the `masked` rules.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from skep.model.message_bounds import SHORT_LIST, Texts
from skep.runtime.masking import mask_login

#: Maximum length of a pattern, in characters.
PATTERN_LIMIT = 1000
PROXY_LIMIT = 10_000

Pattern = Annotated[str, Meta(max_length=PATTERN_LIMIT)]
ProxyUrl = Annotated[str, Meta(min_length=1, max_length=1000)]
Tries = Annotated[int, Meta(ge=1, le=100)]
Status = Annotated[int, Meta(ge=100, le=999)]


class ExitRules(msgspec.Struct, frozen=True, omit_defaults=True):
    """The proxies of requests, and when to change them."""

    #: `http://`, `socks5://` (names are resolved by the agent) or `socks5h://` (by the proxy),
    #: with user and password where needed: `socks5h://user:password@host:1080`.
    proxies: Annotated[tuple[ProxyUrl, ...], Meta(max_length=PROXY_LIMIT)] = ()
    #: Instead of proxies: the agent reconnects its line with its operator's command.
    redial: bool = False
    #: Change the proxy when this pattern matches `HTTP status reason`, headers and body.
    switch_when: Pattern = ""
    #: Change the proxy after this number of requests; 0 = never.
    switch_after: Annotated[int, Meta(ge=0, le=10**9)] = 0
    #: Maximum attempts of one request, each with another proxy.
    tries: Tries = 3
    #: Seconds for which a proxy that does not work is not used.
    rest: Annotated[float, Meta(ge=0, le=86400)] = 300.0

    def masked(self) -> ExitRules:
        """The rules without logins, for display."""
        proxies = tuple(masked_proxy(url) for url in self.proxies)
        return msgspec.structs.replace(self, proxies=proxies)

    def __repr__(self) -> str:
        """Without logins, so that logging the rules leaks none."""
        fields = msgspec.structs.asdict(self)
        fields["proxies"] = tuple(masked_proxy(url) for url in self.proxies)
        return f"ExitRules({', '.join(f'{name}={value!r}' for name, value in fields.items())})"


class SessionRules(msgspec.Struct, frozen=True, omit_defaults=True):
    """Identities: cookies, connections, proxy and headers that belong together."""

    #: Number of sessions on each agent, for requests that name none.
    count: Annotated[int, Meta(ge=1, le=1000)] = 1
    #: A session ends after this number of requests; 0 = never.
    uses: Annotated[int, Meta(ge=0, le=10**9)] = 0
    #: Answers with these statuses mean that the session is blocked.
    blocked_status: Annotated[tuple[Status, ...], Meta(max_length=SHORT_LIST)] = (401, 403)
    #: So does an answer where this matches `HTTP status reason`, headers and body.
    blocked_when: Pattern = ""
    #: Maximum attempts of one request, each in a new session.
    tries: Tries = 3
    #: Sets of headers; each new session uses the next one.
    headers: Annotated[tuple[Texts, ...], Meta(max_length=1000)] = ()


#: `5` is short for five sessions by the default rules.
Sessions = SessionRules | Annotated[int, Meta(ge=1, le=1000)] | None


def session_rules(asked: Sessions) -> SessionRules | None:
    """The long form."""
    return SessionRules(count=asked) if isinstance(asked, int) else asked


class AskedExits(ExitRules, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Rules as a caller writes them: an unknown field is an error."""


class AskedSessions(SessionRules, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """As above."""


def masked_proxy(url: str) -> str:
    """The URL of a proxy, hidden up to the last `@`, even if the URL is not valid."""
    return str(mask_login(url))
