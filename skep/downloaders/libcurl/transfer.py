"""One request over all its hops. Pure; runs in the thread of a downloader.

It decides where to go next, never whether an address is allowed: the egress policy does that.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from skep.downloaders.libcurl.request_headers import Outgoing, for_next_hop, request_headers
from skep.downloaders.libcurl.response_head import Head
from skep.downloaders.ports import Fetched
from skep.downloaders.proxies import ProxyRoute
from skep.downloaders.sessions import Session
from skep.downloaders.target_url import BadTarget, Target, join_target, parse_target
from skep.model.hosts.host import site_of
from skep.model.request import URI_LIMIT, Work

Done = Callable[[Fetched], None]

REDIRECTS = frozenset({301, 302, 303, 307, 308})
_SEE_OTHER = 303
_METHOD_MAY_CHANGE = frozenset({301, 302})
_METHOD = re.compile(r"[A-Z][A-Z-]{0,30}")


class BadRequest(Exception):
    """The request itself is invalid; nothing was sent."""


class Transfer:
    """A request, its next hop, and the totals of its hops so far."""

    __slots__ = (
        "began", "body", "by_digest", "cut_by", "done", "elapsed", "hop_frames", "hops", "host",
        "method", "outgoing", "received", "sent", "session", "site", "target", "tries", "work",
    )  # fmt: skip

    def __init__(self, work: Work, done: Done, run: Outgoing) -> None:
        """Raises BadTarget, BadHeader or BadRequest."""
        self.work = work
        self.done = done
        self.target: Target
        #: The site of the current hop, for politeness.
        self.site: str
        self._aim(parse_target(work.uri))
        #: The host of the request itself, before redirects.
        self.host = self.target.host
        self.outgoing = request_headers(run, work.headers)
        self.method = work.method if work.method == "GET" else _method(work.method)
        self.body = work.body
        #: Whether the login uses digest authentication, without sending the password.
        self.by_digest = False
        self.hops = 0
        #: WARC records of the redirects that were followed.
        self.hop_frames = b""
        #: When the current hop started, and seconds spent on the hops before it.
        self.began = 0.0
        self.elapsed = 0.0
        self.sent = 0
        self.received = 0
        #: For runs with `exits` or `sessions`: its session, and failed tries.
        self.session: Session | None = None
        self.tries = 0
        #: The proxy that cut it off last.
        self.cut_by: ProxyRoute | None = None

    def dress(self, run: Outgoing) -> None:
        """Use the headers of a session; before the first hop."""
        self.outgoing = request_headers(run, self.work.headers)

    def restart(self) -> None:
        """Reset it to before its first hop; bytes sent and received stay counted."""
        self._aim(parse_target(self.work.uri))
        self.method = _method(self.work.method)
        self.body = self.work.body
        self.hops = 0
        self.hop_frames = b""
        self.elapsed = 0.0

    @property
    def may_repeat(self) -> bool:
        """Whether it is safe to send it twice."""
        return self.method in {"GET", "HEAD"}

    @property
    def is_plain(self) -> bool:
        """A GET without body or credentials, which needs no special settings."""
        return self.method == "GET" and not self.body and not self.target.login

    @property
    def final_uri(self) -> str:
        return self.target.url if self.hops else ""

    def follow(self, head: Head, location: str) -> None:
        """Set the next hop, as browsers do; raises BadTarget."""
        before = self.target
        try:
            after = join_target(before.url, _as_text(location))
        except BadTarget as error:
            raise BadTarget(f"bad redirect: {error}") from error
        if len(after.url) > URI_LIMIT:
            raise BadTarget(
                f"bad redirect: its URL has {len(after.url)} characters; the limit is {URI_LIMIT}"
            )
        same = after.origin == before.origin
        if same and before.login and not after.login:
            after = after._replace(login=before.login)
        self._change_method(head.status)
        self.outgoing = for_next_hop(self.outgoing, same_origin=same, with_body=bool(self.body))
        self.by_digest = self.by_digest and same
        self._aim(after)
        self.hops += 1

    def prove(self, head: Head) -> bool:
        """Whether to repeat the request with digest authentication, as the server demands."""
        if self.by_digest or not head.asks_for_digest():
            return False
        self.by_digest = True
        return True

    def _aim(self, target: Target) -> None:
        self.target = target
        self.site = site_of(target.host)

    def _change_method(self, status: int) -> None:
        """303 changes the method to GET; 301 and 302 change POST to GET, as browsers do."""
        to_get = (status == _SEE_OTHER and self.method != "HEAD") or (
            status in _METHOD_MAY_CHANGE and self.method == "POST"
        )
        if to_get:
            self.method, self.body = "GET", b""


def _method(text: str) -> str:
    method = text.upper()
    if _METHOD.fullmatch(method) is None or method == "CONNECT":
        raise BadRequest(f"method {text[:40]!r} is not allowed")
    return method


def _as_text(location: str) -> str:
    """Headers are decoded as latin-1, but some servers send UTF-8."""
    try:
        return location.encode("latin-1").decode()
    except UnicodeDecodeError:
        return location
