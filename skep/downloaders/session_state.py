"""State of a run that outlives its downloader: cookies, and the identities of its sessions.

Pure data. Downloaders collect and restore it; agents store it in a file, so that hosts recognise
a run after a pause or a restart of the agent.
"""

from __future__ import annotations

import msgspec


class SessionIdentity(msgspec.Struct, frozen=True):
    """The identity of a session."""

    #: "" = for requests without a session name.
    name: str
    #: The number of its proxy in the run's list; 0 without proxies.
    exit: int
    cookies: list[str]
    headers: dict[str, str]
    uses: int = 0
    #: Why no request starts in it; its successor has its cookies.
    retired: str = ""


class SessionState(msgspec.Struct, frozen=True):
    """The state of one run on one agent."""

    #: Lines as libcurl writes them.
    cookies: list[str] = msgspec.field(default_factory=list)
    visitors: list[SessionIdentity] = msgspec.field(default_factory=list)
