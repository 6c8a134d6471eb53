"""Sessions of one run: identities that are created, used, blocked and replaced. Pure.

Runs in the thread of a downloader. A session has cookies, connections, a proxy and headers; its
libcurl resources are in `share`, which this module does not use. Nothing of one session ever
enters another, except for the cookies of a run without rules for sessions: there only the proxy
changes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from random import Random
from typing import Any

from skep.downloaders.proxies import ProxyPool, ProxyRoute
from skep.downloaders.session_state import SessionIdentity
from skep.model.proxies import ExitRules, SessionRules

#: Maximum named sessions per run and agent; above it the least recently used one ends.
NAMED_LIMIT = 1000
_NO_HEADERS: Mapping[str, str] = {}


class Session:
    """One session."""

    __slots__ = (
        "cookies",
        "exit",
        "headers",
        "name",
        "open",
        "predecessor",
        "retired",
        "share",
        "uses",
    )

    def __init__(
        self, name: str, way: ProxyRoute, headers: Mapping[str, str], predecessor: Session | None
    ) -> None:
        #: "" = for requests without a session name.
        self.name = name
        self.exit = way
        self.headers = headers
        #: The session whose cookies it takes over.
        self.predecessor = predecessor
        #: Its curl share; created at its first use.
        self.share: Any = None
        #: The cookies of its last share, for its successor or its next share.
        self.cookies: list[str] = []
        #: Requests that started in it, and those that have not ended.
        self.uses = 0
        self.open = 0
        #: Why no request may start in it; "" = one may.
        self.retired = ""

    def __repr__(self) -> str:
        return f"<Session {self.name or 'unnamed'} {self.exit} {self.retired}>"


class SessionPool:
    """All sessions of a run on one agent."""

    def __init__(
        self, exits: ExitRules | None, sessions: SessionRules | None, pool: ProxyPool, rng: Random
    ) -> None:
        self._pool = pool
        self._isolated = sessions is not None
        rules = sessions or SessionRules()
        routes = exits or ExitRules()
        limits = [limit for limit in (rules.uses, routes.switch_after) if limit]
        #: With `redial` the caller counts requests.
        self._uses = rules.uses if routes.redial else min(limits, default=0)
        self._headers = list(rules.headers)
        rng.shuffle(self._headers)
        self._dressed = 0
        self._turns: deque[Session | None] = deque([None] * rules.count)
        self._named: dict[str, Session] = {}
        #: Sessions without active requests: their shares can be closed.
        self.ended: list[Session] = []

    def take(self, name: str, now: float) -> Session | None:
        """The session for a request, counted as used; None when every proxy is paused."""
        session = self._next_named(name, now) if name else self._next_unnamed(now)
        if session is not None:
            session.uses += 1
            session.open += 1
        return session

    def leave(self, session: Session) -> None:
        """A request of the session has ended."""
        session.open -= 1
        if session.retired and not session.open:
            self.ended.append(session)

    def retire(self, session: Session, why: str) -> bool:
        """Accept no more requests; False when it was retired before."""
        if session.retired:
            return False
        session.retired = why
        if not session.open:
            self.ended.append(session)
        return True

    def retire_all(self, why: str, way: ProxyRoute | None = None) -> int:
        """Retire every session, or every one with this proxy; return how many."""
        chosen = [one for one in self.known() if way is None or one.exit is way]
        return sum(self.retire(one, why) for one in chosen)

    def disconnect(self) -> None:
        """Close the connections of idle sessions; their identities stay."""
        self.ended += [one for one in self.known() if not one.open and not one.retired]

    def restore(self, identity: SessionIdentity) -> None:
        """Restore a session of an earlier downloader of the run."""
        way = self._pool.numbered(identity.exit)
        if way is None:
            return
        session = Session(identity.name, way, identity.headers, None)
        session.cookies, session.uses = identity.cookies, identity.uses
        session.retired = identity.retired
        if identity.name:
            self._named.setdefault(identity.name, session)
        elif None in self._turns:
            self._turns[self._turns.index(None)] = session

    def known(self) -> list[Session]:
        """All sessions, including retired ones without a successor."""
        return [*self._named.values(), *filter(None, self._turns)]

    def _next_unnamed(self, now: float) -> Session | None:
        """They alternate."""
        session = self._usable(self._turns[0], "", now)
        if session is not None:
            self._turns[0] = session
        self._turns.rotate(-1)
        return session

    def _next_named(self, name: str, now: float) -> Session | None:
        session = self._usable(self._named.get(name), name, now)
        if session is not None:
            # The last in the dictionary is the most recently used one.
            self._named.pop(name, None)
            self._named[name] = session
            if len(self._named) > NAMED_LIMIT:
                oldest = next(iter(self._named))
                self.retire(self._named.pop(oldest), "forgotten")
        return session

    def _usable(self, session: Session | None, name: str, now: float) -> Session | None:
        if session is None:
            return self._fresh(None, name, now)
        if self._uses and session.uses >= self._uses:
            self.retire(session, "used up")
        return self._fresh(session, name, now) if session.retired else session

    def _fresh(self, before: Session | None, name: str, now: float) -> Session | None:
        way = self._pool.take(now, before.exit if before else None)
        if way is None:
            return None
        predecessor = None if self._isolated else before
        return Session(name, way, self._next_headers(), predecessor)

    def _next_headers(self) -> Mapping[str, str]:
        if not self._headers:
            return _NO_HEADERS
        self._dressed += 1
        return self._headers[(self._dressed - 1) % len(self._headers)]
