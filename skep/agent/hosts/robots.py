"""robots.txt: what hosts have said, kept for an hour, and how an answer of theirs is read.

Runs on the agent's event loop; it fetches nothing itself. One robots.txt speaks for one
origin (scheme, host and port). It must never allow what was not asked for: a host whose
robots.txt cannot be had is left alone for now.
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
from skep.model.run import RunSettings
from skep.model.states import FailureClass

log = logging.getLogger(__name__)

KEPT, KEPT_SECONDS = 1024, 3600.0
#: So much of a robots.txt is read, as search engines do; the rest does not count.
READ_BYTES = 500 * 1024
#: A file larger than that takes longer to read than the event loop should be held up.
LONG_BYTES = 32 * 1024
UNPACK_LIMIT = 64 * 2**20
#: Followed at least, as the standard asks.
REDIRECTS = 5
OURS = "Skep"
_TOKEN = re.compile(r"[A-Za-z_-]+")
#: As libcurl says it.
_GONE = re.compile(r"could not resolve|couldn't connect|failed to connect|refused", re.IGNORECASE)
_OK, _REDIRECT, _SERVER_ERROR = 200, 300, 500


class Rules:
    """What one robots.txt says; without a parser everything is allowed."""

    __slots__ = ("_parser", "until")

    def __init__(self, parser: Protego | None = None) -> None:
        self._parser = parser
        self.until = 0.0

    def allow(self, url: str, agent: str) -> bool:
        return self._parser is None or bool(self._parser.can_fetch(url, agent))

    def crawl_delay(self, agent: str) -> float:
        """Seconds between two requests that it asks for, in either of its two ways."""
        if self._parser is None:
            return 0.0
        delay = self._parser.crawl_delay(agent) or 0.0
        rate = self._parser.request_rate(agent)
        if rate is not None and rate.requests:
            delay = max(delay, rate.seconds / rate.requests)
        return float(delay)


class Text(NamedTuple):
    """A robots.txt that came, not read yet."""

    content: bytes


class Silence(NamedTuple):
    """None came: how its request failed, and what the host is in trouble for."""

    trouble: str
    failure: str
    detail: str
    cool: float | None = None
    #: The host refuses connections, or its name cannot be resolved.
    gone: bool = False


class Robots:
    """The rules of the origins that were asked most recently."""

    def __init__(self, kept: int = KEPT, seconds: float = KEPT_SECONDS) -> None:
        self._kept = kept
        self._seconds = seconds
        self._rules: OrderedDict[str, Rules] = OrderedDict()

    def __len__(self) -> int:
        return len(self._rules)

    def rules_of(self, origin: str, now: float) -> Rules | None:
        """None when the origin has to be asked (again)."""
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
    """(origin, URI as it is sent); None when there is no robots.txt for such a thing."""
    try:
        target = parse_target(uri)
    except BadTarget:
        return None
    return target.origin, target.url


def product_token(headers: Mapping[str, str]) -> str:
    """The name by which robots.txt knows us: the first word of the User-Agent."""
    for name, value in headers.items():
        if name.lower() == "user-agent" and (found := _TOKEN.match(value.strip())):
            return found[0]
    return OURS


def robots_settings(settings: RunSettings) -> RunSettings:
    """How a run asks for robots.txt: as for its pages, but by plain HTTP and whole. Content
    rules, small limits or code of one's own would leave nothing, and so allow everything."""
    return replace(
        settings,
        downloader=HTTP.name,
        content=None,
        body_limit=max(settings.body_limit, READ_BYTES),
        redirects=max(settings.redirects, REDIRECTS),
    )


def judge(fetched: Fetched) -> Text | Silence:
    """What the answer to a request for robots.txt means.

    A server that has none (4xx, or redirects without end) allows everything; one that fails
    or cannot be reached allows nothing for now.
    """
    outcome = fetched.outcome
    status = outcome.status
    if _OK <= status < _REDIRECT:
        return _unpacked(fetched)
    if outcome.failure in {FailureClass.BLOCKED, FailureClass.CODE} and not status:
        return Text(b"")  # our own policy or set-up: the request itself will meet it, and say so
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
    """The body, also of an answer that was cut: a part of the rules is better than none."""
    try:
        record = FirstRecords().read(fetched.frames, UNPACK_LIMIT)
        content = split_response(record, UNPACK_LIMIT).body
    except SkepError as error:
        return Silence("robots", FailureClass.CONTENT, error.detail)
    if len(content) > READ_BYTES:
        # A rule that is cut in two would forbid more than was meant.
        content = content[: content.rfind(b"\n", 0, READ_BYTES) + 1]
    return Text(content)


def read(text: Text) -> Rules:
    """Never raises: what cannot be read is no rule."""
    if not text.content.strip():
        return Rules()
    try:
        return Rules(Protego.parse(text.content.decode("utf-8-sig", "replace")))
    except Exception:
        log.exception("a robots.txt could not be read")
        return Rules()
