"""How a run leaves the agents: proxies, redials, sessions. Pure data; travels with a run.

What is written here is checked when the run is opened (`skep.jobs.request_validation`). Logins of
proxies are for agents alone: everybody else is shown `masked` rules.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from skep.model.message_bounds import SHORT_LIST, Texts
from skep.runtime.masking import mask_login

#: Longest pattern, in characters.
PATTERN_LIMIT = 1000
PROXY_LIMIT = 10_000

Pattern = Annotated[str, Meta(max_length=PATTERN_LIMIT)]
ProxyUrl = Annotated[str, Meta(min_length=1, max_length=1000)]
Tries = Annotated[int, Meta(ge=1, le=100)]
Status = Annotated[int, Meta(ge=100, le=999)]


class ExitRules(msgspec.Struct, frozen=True, omit_defaults=True):
    """Which way requests go out, and when to take another one."""

    #: `http://`, `socks5://` (names are resolved by the agent) or `socks5h://` (by the proxy),
    #: with user and password where needed: `socks5h://user:password@host:1080`.
    proxies: Annotated[tuple[ProxyUrl, ...], Meta(max_length=PROXY_LIMIT)] = ()
    #: Instead of proxies: the agent dials its line again, by its operator's command.
    redial: bool = False
    #: Take another exit when this is found in `HTTP status reason`, headers and body.
    switch_when: Pattern = ""
    #: Take another exit after so many requests; 0 = never.
    switch_after: Annotated[int, Meta(ge=0, le=10**9)] = 0
    #: How many times one request is tried, on one exit after the other.
    tries: Tries = 3
    #: Seconds for which a proxy that does not work is left alone.
    rest: Annotated[float, Meta(ge=0, le=86400)] = 300.0

    def masked(self) -> ExitRules:
        """The same without logins, for people."""
        proxies = tuple(masked_proxy(url) for url in self.proxies)
        return msgspec.structs.replace(self, proxies=proxies)

    def __repr__(self) -> str:
        """Whoever logs rules by accident logs no login."""
        fields = msgspec.structs.asdict(self)
        fields["proxies"] = tuple(masked_proxy(url) for url in self.proxies)
        return f"ExitRules({', '.join(f'{name}={value!r}' for name, value in fields.items())})"


class SessionRules(msgspec.Struct, frozen=True, omit_defaults=True):
    """Identities: cookies, connections, proxy and headers that belong together."""

    #: So many at the same time on each agent, for requests that name none.
    count: Annotated[int, Meta(ge=1, le=1000)] = 1
    #: A session ends after so many requests; 0 = never.
    uses: Annotated[int, Meta(ge=0, le=10**9)] = 0
    #: Answers with these statuses mean that the session is blocked.
    blocked_status: Annotated[tuple[Status, ...], Meta(max_length=SHORT_LIST)] = (401, 403)
    #: So does an answer in which this is found: `HTTP status reason`, headers and body.
    blocked_when: Pattern = ""
    #: How many times one request is tried, each time in a fresh session.
    tries: Tries = 3
    #: Sets of headers; each new session takes the next one.
    headers: Annotated[tuple[Texts, ...], Meta(max_length=1000)] = ()


#: `5` is short for five sessions by the default rules.
Sessions = SessionRules | Annotated[int, Meta(ge=1, le=1000)] | None


def session_rules(asked: Sessions) -> SessionRules | None:
    """The long form."""
    return SessionRules(count=asked) if isinstance(asked, int) else asked


class AskedExits(ExitRules, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Rules as a caller writes them: a misspelt field is told, not dropped."""


class AskedSessions(SessionRules, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """As above."""


def masked_proxy(url: str) -> str:
    """Without its login; whatever else is wrong with it, up to the last `@` is hidden."""
    return str(mask_login(url))
