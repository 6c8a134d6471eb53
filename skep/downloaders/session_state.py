"""What is a run's own and outlives its downloader: cookies, and who its sessions are.

Pure data. Downloaders gather it and take it over; agents keep it in a file, so that a run that
rested, or an agent that was started again, does not come back as a stranger.
"""

from __future__ import annotations

import msgspec


class SessionIdentity(msgspec.Struct, frozen=True):
    """A session."""

    #: "" = for requests that name none.
    name: str
    #: Which of the run's proxies it uses, by number; 0 where there are none.
    exit: int
    cookies: list[str]
    headers: dict[str, str]
    uses: int = 0
    #: Why no request starts in it any more; its heir has its cookies.
    retired: str = ""


class SessionState(msgspec.Struct, frozen=True):
    """Of one run, on one agent."""

    #: Lines as libcurl writes them.
    cookies: list[str] = msgspec.field(default_factory=list)
    visitors: list[SessionIdentity] = msgspec.field(default_factory=list)
