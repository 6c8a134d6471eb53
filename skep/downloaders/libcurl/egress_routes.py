"""Chooses the session of a request and evaluates its response. Runs in the thread of a downloader
whose run has proxies, redials or sessions; other runs do not use it.

A request that was blocked or whose proxy is dead is retried through another proxy, up to a number
of tries. It never uses the agent's own address because no proxy works.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from enum import Enum, auto
from random import Random

import pycurl

from skep.downloaders.curl_failures import CurlFailure
from skep.downloaders.egress_policy import EgressPolicy
from skep.downloaders.libcurl.curl_share import CurlShare
from skep.downloaders.libcurl.request_headers import BadHeader, run_headers
from skep.downloaders.libcurl.response_head import Head
from skep.downloaders.libcurl.slot import Slot, SlotOptions
from skep.downloaders.libcurl.transfer import Transfer
from skep.downloaders.pattern import compiled, searched
from skep.downloaders.proxies import (
    ProxyFailure,
    ProxyPool,
    ProxyRoute,
    Said,
    login_refused,
    parse_proxy,
    proxy_failure,
)
from skep.downloaders.proxy_counts import Tally
from skep.downloaders.session_state import SessionIdentity
from skep.downloaders.sessions import Session, SessionPool
from skep.model.failures.failure_class import FailureClass
from skep.model.proxies import ExitRules, SessionRules, session_rules
from skep.model.run import RunSettings

log = logging.getLogger(__name__)

NO_REDIAL = "the run asks for a redial, and this agent has no agent.redial command"


class Next(Enum):
    """What happens to a request that has not ended."""

    #: Retry through another proxy.
    AGAIN = auto()
    #: Wait until the redial has ended.
    PARK = auto()


class EgressRoutes:
    """Sessions and proxies of one run."""

    def __init__(
        self,
        settings: RunSettings,
        base: SlotOptions,
        egress: EgressPolicy,
        rng: Random,
        tally: Tally,
        plain: Callable[[], Slot],
    ) -> None:
        exits, sessions = settings.exits, session_rules(settings.sessions)
        #: Without rules, only requests that name a session use one.
        self._only_named = exits is None and sessions is None
        self._plain = plain
        self._exits = exits or ExitRules()
        self._rules = sessions or SessionRules(blocked_status=())
        self._bad_status = frozenset(self._rules.blocked_status) - set(settings.accept_status)
        self._switch_when = compiled(self._exits.switch_when, "exits.switch_when")
        self._blocked_when = compiled(self._rules.blocked_when, "sessions.blocked_when")
        proxies = [parse_proxy(url) for url in self._exits.proxies]
        self._pool = ProxyPool(proxies, self._exits.rest, rng)
        self._sessions = SessionPool(exits, sessions, self._pool, rng)
        self._inherits = sessions is None
        self._headers = settings.headers
        self._base = base
        self._egress = egress
        self._tally = tally
        self._shares: set[CurlShare] = set()
        self._since_dial = 0
        #: The last error of a proxy.
        self._trouble = ""
        #: Requests a redial of the agent; None = not possible.
        self.redial: Callable[[], None] | None = None
        #: Requests that wait for a redial.
        self.parked: list[Transfer] = []

    def outfit(self, transfer: Transfer, now: float) -> Slot | CurlFailure | None:
        """A handle for the next hop, or the failure; None = the request waits for a redial."""
        if self._only_named and not transfer.work.session:
            return self._plain()
        session = transfer.session or self._choose(transfer, now)
        if not isinstance(session, Session):
            return session
        if session.exit.proxy is not None:
            # The proxy connects for us, so the policy must also apply to its connections.
            reason = self._egress.check_name(transfer.target.host, transfer.target.port)
            if reason is not None:
                return FailureClass.BLOCKED, reason
        slot: Slot = session.share.slot()
        return slot

    def _choose(self, transfer: Transfer, now: float) -> Session | CurlFailure | None:
        if self._exits.redial and 0 < self._exits.switch_after <= self._since_dial:
            return self._park(transfer)
        session = self._sessions.take(transfer.work.session, now)
        if session is None:
            count = len(self._pool)
            return (
                FailureClass.NETWORK,
                f"none of {count} proxies works; last error: {self._trouble}",
            )
        self._since_dial += 1
        transfer.session = session
        try:
            share = session.share or self._new_share(session)
            transfer.dress(share.outgoing)
        except BadHeader as error:
            return FailureClass.CONTENT, str(error)
        return session

    def identities(self) -> list[SessionIdentity]:
        """The identities of the sessions, for a later downloader of the run."""
        known = [one for one in self._sessions.known() if self._inherits or not one.retired]
        return [
            SessionIdentity(
                one.name,
                one.exit.number,
                _cookies_of(one),
                dict(one.headers),
                one.uses,
                one.retired,
            )
            for one in known
        ]

    def restore(self, identities: Sequence[SessionIdentity]) -> None:
        """Restore the sessions of an earlier downloader; only before the first request."""
        for identity in identities:
            self._sessions.restore(identity)

    def _new_share(self, session: Session) -> CurlShare:
        cookies, session.predecessor = _cookies_of(session), None
        outgoing = run_headers({**self._headers, **session.headers})
        share = session.share = CurlShare(self._base, session.exit.proxy, outgoing, cookies)
        self._shares.add(share)
        return share

    def judge(
        self, slot: Slot, transfer: Transfer, session: Session, head: Head, number: int
    ) -> CurlFailure | Next | None:
        """Evaluate the end of a hop for its session and proxy. None = no effect."""
        if session.exit.proxy is not None and not slot.refused:
            said = _said(slot, head, number)
            trouble = proxy_failure(said)
            if trouble is ProxyFailure.DEAD:
                return self._dead(transfer, session.exit, said)
            if trouble is ProxyFailure.CUT and transfer.may_repeat and self._again(transfer):
                transfer.cut_by = session.exit
                return Next.AGAIN
        return self._block(slot, transfer, head, session) if head.status else None

    def _dead(self, transfer: Transfer, way: ProxyRoute, said: Said) -> CurlFailure | Next:
        why = "refuses our credentials" if login_refused(said) else "does not answer"
        detail = self._trouble = f"proxy {way.proxy} {why}"
        if self._pool.rest(way, self._base.now()):
            self._tally.add(rested=1)
            log.warning("%s; pausing it for %g s", detail, self._exits.rest)
        self._sessions.retire_all("its proxy died", way)
        if transfer.cut_by is way:
            # The cut and the failure count as one try; the next is through another proxy.
            transfer.cut_by, transfer.tries = None, transfer.tries - 1
        return Next.AGAIN if self._again(transfer) else (FailureClass.NETWORK, detail)

    def _block(
        self, slot: Slot, transfer: Transfer, head: Head, session: Session
    ) -> CurlFailure | Next | None:
        text = b""
        if self._switch_when is not None or self._blocked_when is not None:
            text = searched(head.status, head.reason, head.headers, slot.body())
        if head.status in self._bad_status:
            return self._blocked(transfer, session, f"status {head.status}")
        if self._blocked_when is not None and self._blocked_when.search(text) is not None:
            return self._blocked(transfer, session, "sessions.blocked_when matches")
        if self._switch_when is not None and self._switch_when.search(text) is not None:
            return self._switch(transfer, session, "exits.switch_when matches")
        return None

    def _blocked(self, transfer: Transfer, session: Session, why: str) -> CurlFailure | Next:
        if self._sessions.retire(session, "blocked"):
            self._tally.add(blocked=1)
        if self._again(transfer, self._rules.tries):
            return Next.AGAIN
        return FailureClass.BLOCKED, f"the session is blocked: {why} ({_tries(transfer)})"

    def _switch(self, transfer: Transfer, session: Session, why: str) -> CurlFailure | Next:
        # Retired before: an earlier request of the session has handled the block.
        late = bool(session.retired)
        if not self._exits.redial and self._sessions.retire(session, "switched"):
            self._tally.add(switches=1)
        if not self._again(transfer):
            return (
                FailureClass.BLOCKED,
                f"the proxy or address is blocked: {why} ({_tries(transfer)})",
            )
        if self._exits.redial and not late:
            return self._park(transfer) or Next.PARK
        return Next.AGAIN

    def _park(self, transfer: Transfer) -> CurlFailure | None:
        """None = it waits for the redial."""
        if self.redial is None:
            return FailureClass.BLOCKED, NO_REDIAL
        self.parked.append(transfer)
        self.redial()
        return None

    def _again(self, transfer: Transfer, limit: int = 0) -> bool:
        """Whether it may be retried; then it is reset and has no session."""
        transfer.tries += 1
        if transfer.tries >= (limit or self._exits.tries):
            return False
        self.leave(transfer)
        transfer.restart()
        return True

    def leave(self, transfer: Transfer) -> None:
        """Remove a request from its session because it has ended or changes its session."""
        if transfer.session is not None:
            self._sessions.leave(transfer.session)
            transfer.session = None

    def sweep(self) -> None:
        """Close the curl shares of ended sessions; their handles must have been returned."""
        while self._sessions.ended:
            session = self._sessions.ended.pop()
            if session.share is not None:
                kept = self._inherits or not session.retired
                session.cookies = session.share.cookies() if kept else []
                self._shares.discard(session.share)
                session.share.close()
                session.share = None

    def redialled(self) -> list[Transfer]:
        """The agent has another address now: connections are dead, and so are the identities that
        used the old address. Returns the requests that waited."""
        if self._exits.redial:
            self._tally.add(switches=1)
            self._since_dial = 0
            self._sessions.retire_all("redialled")
        else:
            self._sessions.disconnect()
        self.sweep()
        parked, self.parked = self.parked, []
        return parked

    def close(self) -> None:
        """Close it; every active handle must have been closed."""
        for share in self._shares:
            share.close()
        self._shares.clear()


def _cookies_of(session: Session) -> list[str]:
    """Its cookies, or those of its predecessor."""
    if session.share is not None:
        cookies: list[str] = session.share.cookies()
        return cookies
    return session.cookies if session.predecessor is None else _cookies_of(session.predecessor)


def _said(slot: Slot, head: Head, number: int) -> Said:
    if not number:
        return Said(0, head.status)
    info = slot.curl.getinfo
    return Said(
        number,
        head.status,
        info(pycurl.HTTP_CONNECTCODE),
        info(pycurl.PROXY_ERROR),
        info(pycurl.CONNECT_TIME) > 0,
    )


def _tries(transfer: Transfer) -> str:
    return "1 try" if transfer.tries == 1 else f"{transfer.tries} tries"
