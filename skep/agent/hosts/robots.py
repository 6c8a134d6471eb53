"""robots.txt: a cache of rules for an hour, and how answers are interpreted.

Runs on the agent's event loop; it fetches nothing itself. One robots.txt applies to one origin
(scheme, host and port). It must never allow requests without rules: a host whose robots.txt
cannot be fetched is paused.
"""

from __future__ import annotations

import logging
import re
from collections import OrderedDict
from collections.abc import Mapping
from typing import NamedTuple

from msgspec.structs import replace
from protego import Protego

from skep.agent.hosts.rate_limited_requests import REFUSALS
from skep.archive.records import FirstRecords, split_response
from skep.downloaders.ports import Fetched
from skep.downloaders.target_url import BadTarget, parse_target
from skep.errors import SkepError
from skep.model.downloader_kinds import HTTP
from skep.model.failures.failure_class import FailureClass
from skep.model.run import RunSettings

log = logging.getLogger(__name__)

KEPT, KEPT_SECONDS = 1024, 3600.0
#: Maximum bytes of a robots.txt, as in search engines; the rest is ignored.
READ_BYTES = 500 * 1024
#: Larger files are parsed in a thread, so that they do not block the event loop.
LONG_BYTES = 32 * 1024
UNPACK_LIMIT = 64 * 2**20
#: Minimum redirects that are followed, as the standard requires.
REDIRECTS = 5
OURS = "Skep"
_TOKEN = re.compile(r"[A-Za-z_-]+")
#: Messages of libcurl.
_GONE = re.compile(r"could not resolve|couldn't connect|failed to connect|refused", re.IGNORECASE)
_OK, _REDIRECT, _SERVER_ERROR = 200, 300, 500


class Rules:
    """The rules of one robots.txt; without a parser everything is allowed."""

    __slots__ = ("_parser", "until")

    def __init__(self, parser: Protego | None = None) -> None:
        self._parser = parser
        self.until = 0.0

    def allow(self, url: str, agent: str) -> bool:
        return self._parser is None or bool(self._parser.can_fetch(url, agent))

    def crawl_delay(self, agent: str) -> float:
        """Seconds between two requests, from Crawl-delay or Request-rate."""
        if self._parser is None:
            return 0.0
        delay = self._parser.crawl_delay(agent) or 0.0
        rate = self._parser.request_rate(agent)
        if rate is not None and rate.requests:
            delay = max(delay, rate.seconds / rate.requests)
        return float(delay)


class Text(NamedTuple):
    """A robots.txt that was fetched, not parsed yet."""

    content: bytes


class Silence(NamedTuple):
    """No robots.txt: how its request failed, and the reason of the pause."""

    trouble: str
    failure: str
    detail: str
    cool: float | None = None
    #: The host refuses connections, or its name cannot be resolved.
    gone: bool = False


class Robots:
    """The rules of the most recently used origins."""

    def __init__(self, kept: int = KEPT, seconds: float = KEPT_SECONDS) -> None:
        self._kept = kept
        self._seconds = seconds
        self._rules: OrderedDict[str, Rules] = OrderedDict()

    def __len__(self) -> int:
        return len(self._rules)

    def rules_of(self, origin: str, now: float) -> Rules | None:
        """None when robots.txt has to be fetched (again)."""
        rules = self._rules.get(origin)
        if rules is None or rules.until <= now:
            return None
        self._rules.move_to_end(origin)
        return rules

    def keep(self, origin: str, rules: Rules, now: float) -> None:
        rules.until = now + self._seconds
        self._rules[origin] = rules
        self._rules.move_to_end(origin)
        if len(self._rules) > self._kept:
            self._rules.popitem(last=False)


def place_of(uri: str) -> tuple[str, str] | None:
    """(origin, URI as it is sent); None when robots.txt does not apply to the scheme."""
    try:
        target = parse_target(uri)
    except BadTarget:
        return None
    return target.origin, target.url


def product_token(headers: Mapping[str, str]) -> str:
    """The name of this agent in robots.txt: the first word of the User-Agent."""
    for name, value in headers.items():
        if name.lower() == "user-agent" and (found := _TOKEN.match(value.strip())):
            return found[0]
    return OURS


def robots_settings(settings: RunSettings) -> RunSettings:
    """The settings for fetching robots.txt: those of the run, but with plain HTTP and complete.
    Content rules, small limits or user code would leave nothing, and so allow everything."""
    return replace(
        settings,
        downloader=HTTP.name,
        content=None,
        body_limit=max(settings.body_limit, READ_BYTES),
        redirects=max(settings.redirects, REDIRECTS),
    )


def judge(fetched: Fetched) -> Text | Silence:
    """Interprets the answer to a request for robots.txt.

    A server without one (4xx, or too many redirects) allows everything; one that fails or
    cannot be reached allows nothing for now.
    """
    outcome = fetched.outcome
    status = outcome.status
    if _OK <= status < _REDIRECT:
        return _unpacked(fetched)
    if outcome.failure in {FailureClass.BLOCKED, FailureClass.CODE} and not status:
        return Text(b"")  # the agent's own policy or setup: the request itself fails and reports it
    detail = outcome.detail or f"the server answered {status}"
    if status in REFUSALS:
        return Silence(str(status), FailureClass.STATUS, detail, outcome.retry_after)
    if _REDIRECT <= status < _SERVER_ERROR:
        return Text(b"")
    gone = is_gone(outcome.failure, detail)
    return Silence("robots", outcome.failure or FailureClass.STATUS, detail, gone=gone)


def is_gone(failure: str, detail: str) -> bool:
    """Whether the host refuses connections, or its name cannot be resolved."""
    return failure == FailureClass.NETWORK and _GONE.search(detail) is not None


def _unpacked(fetched: Fetched) -> Text | Silence:
    """The body, also of a truncated answer: some rules are better than none."""
    try:
        record = FirstRecords().read(fetched.frames, UNPACK_LIMIT)
        content = split_response(record, UNPACK_LIMIT).body
    except SkepError as error:
        return Silence("robots", FailureClass.CONTENT, error.detail)
    if len(content) > READ_BYTES:
        # A truncated rule would forbid too much.
        content = content[: content.rfind(b"\n", 0, READ_BYTES) + 1]
    return Text(content)


def read(text: Text) -> Rules:
    """Parses rules. Never raises: unreadable lines are ignored."""
    if not text.content.strip():
        return Rules()
    try:
        return Rules(Protego.parse(text.content.decode("utf-8-sig", "replace")))
    except Exception:
        log.exception("cannot parse a robots.txt")
        return Rules()
