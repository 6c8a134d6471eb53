"""Requests of rate-limited hosts wait here until they are due.

Pure, given the time; runs on the agent's event loop, one queue for all of its runs. It keeps the
spacing between starts and the concurrency, learns from answers how much spacing a host needs, and
decides when a host must be paused. It never starts anything itself.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from math import inf
from typing import Generic, TypeVar

from skep.model.failures.failure_class import FailureClass
from skep.model.hosts.host import FAILING, Pace, site_of
from skep.model.request import Outcome

Item = TypeVar("Item")

#: Statuses by which a host asks for a pause.
REFUSALS = frozenset({429, 503})
_FIRST_SERVER_ERROR = 500
_SILENCE = frozenset({FailureClass.NETWORK, FailureClass.TIMEOUT})
#: Maximum spacing between two starts that refusals can cause, and the first one.
DELAY_CAP, DELAY_FIRST = 60.0, 1.0
#: Weight of the newest answer in the mean latency; factor of the delay after a good answer.
NEWEST, DECAY = 0.3, 0.8
#: Seconds within which a waiting request counts as startable.
SOON = 1.0
#: Maximum idle hosts; more are dropped.
REMEMBERED = 4096

#: Everything up to the host; the center has normalized the URIs of a block.
_HOST = re.compile(r"[a-z][a-z0-9+.-]*://(?:[^/?#]*@)?(\[[^\]/]*\]|[^/?#:]*)", re.IGNORECASE)


def host_in(uri: str) -> str:
    """The host of a URI; "" when it has none."""
    found = _HOST.match(uri)
    return site_of(found[1]) if found else ""


class RateLimitedHost(Generic[Item]):
    """One rate-limited host: its waiting requests, and what was learnt from its answers."""

    __slots__ = (
        "ahead", "asking", "base", "concurrency", "crawl_delay", "delay", "detail", "failure",
        "failures", "host", "last", "latency", "not_before", "queued", "resting", "robots",
        "running", "waiting",
    )  # fmt: skip

    def __init__(self, host: str) -> None:
        self.host = host
        self.waiting: deque[Item] = deque()
        self.running = 0
        #: Spacing set by the center, and by the host (robots.txt), in seconds.
        self.base = 0.0
        self.crawl_delay = 0.0
        #: Learnt from latency and refusals.
        self.delay = 0.0
        self.concurrency = 1
        self.robots = False
        #: Every request fails with this class and message; "" = none does.
        self.failure = self.detail = ""
        self.last = -inf
        self.not_before = -inf
        self.latency = 0.0
        #: Consecutive failures that indicate a problem of the host.
        self.failures = 0
        #: The host was reported as paused; the next lease ends the pause.
        self.resting = False
        #: Its robots.txt has been requested.
        self.asking = False
        #: It is in the queue of due hosts: at most once.
        self.queued = False
        #: Number of waiting requests that can be started soon.
        self.ahead = 1

    @property
    def spacing(self) -> float:
        """Seconds between two starts."""
        return max(self.base, self.crawl_delay, self.delay)

    @property
    def next_start(self) -> float:
        return max(self.not_before, self.last + self.spacing)

    @property
    def ripe(self) -> int:
        return min(len(self.waiting), self.ahead)

    def wait(self, now: float) -> float:
        """Seconds before the next start is allowed."""
        return max(self.next_start - now, 0.0)

    def answered(self, seconds: float) -> None:
        """A good answer: the delay moves towards the latency, so that about one download is under
        way. A host without a rate is limited by its concurrency only."""
        self.latency += (seconds - self.latency) * (NEWEST if self.latency else 1.0)
        target = self.latency if self.base else 0.0
        if self.delay < target:
            self.delay = (self.delay + target) / 2
        else:
            self.delay = max(target, self.delay * DECAY)

    def refused(self) -> None:
        self.delay = min(max(2 * self.spacing, DELAY_FIRST), max(DELAY_CAP, self.base))


class RateLimitedRequests(Generic[Item]):
    """The waiting requests of all rate-limited hosts."""

    def __init__(
        self, *, adaptive: bool = True, breaker_after: int = 5, crawl_delay_cap: float = 300.0
    ) -> None:
        self.follow(adaptive=adaptive, breaker_after=breaker_after, crawl_delay_cap=crawl_delay_cap)
        self._sites: dict[str, RateLimitedHost[Item]] = {}
        self._queue: list[tuple[float, int, RateLimitedHost[Item]]] = []
        self._count = 0
        #: Waiting requests, and how many of them can be started soon.
        self.waiting = 0
        self.ripe = 0

    def follow(self, *, adaptive: bool, breaker_after: int, crawl_delay_cap: float) -> None:
        """Rules for all hosts from now on: those of the center, if any."""
        self._adaptive = adaptive
        self._breaker_after = breaker_after
        self._crawl_delay_cap = crawl_delay_cap

    def learn(self, pace: Pace, now: float) -> RateLimitedHost[Item]:
        """A lease has this pace: it applies from now on, and ends a pause."""
        site = self._sites.get(pace.host)
        if site is None:
            self._forget_idle(now)
            site = self._sites[pace.host] = RateLimitedHost(pace.host)
        self.ripe -= site.ripe
        site.base, site.concurrency, site.robots = pace.spacing, pace.concurrency, pace.robots
        site.failure, site.detail = pace.failure, pace.detail
        site.not_before = max(site.not_before, now + pace.wait)
        if self._adaptive:
            site.delay = max(site.delay, pace.delay) if site.running else pace.delay
        if pace.strikes or site.resting:
            # A probe: one more failure shows that the host still has a problem.
            site.failures = max(site.failures, self._breaker_after - 1)
        site.resting = False
        # A learnt spacing can be almost zero.
        every = max(site.spacing, SOON / REMEMBERED)
        site.ahead = max(1, int(SOON / every)) if site.spacing else site.concurrency
        self.ripe += site.ripe
        self.settle(site)
        return site

    def offer(self, site: RateLimitedHost[Item], item: Item) -> None:
        """Queue an item until it is due."""
        self.ripe -= site.ripe
        site.waiting.append(item)
        self.waiting += 1
        self.ripe += site.ripe
        self.settle(site)

    def due(self, now: float) -> RateLimitedHost[Item] | None:
        """A host whose first waiting item may start now; call `settle` afterwards."""
        while self._queue and self._queue[0][0] <= now:
            site = heappop(self._queue)[2]
            site.queued = False
            if site.next_start <= now and self._open(site):
                return site
            self.settle(site)
        return None

    def take(self, site: RateLimitedHost[Item]) -> Item:
        """Its first waiting item leaves the queue."""
        self.ripe -= site.ripe
        item = site.waiting.popleft()
        self.waiting -= 1
        self.ripe += site.ripe
        return item

    def begin(self, site: RateLimitedHost[Item], now: float) -> None:
        """A download from this host starts."""
        site.running += 1
        site.last = now

    def leave(self, site: RateLimitedHost[Item], began: float) -> None:
        """A download has ended; `began` is the start of its last hop (0 = not known)."""
        site.running -= 1
        site.last = max(site.last, began)
        self.settle(site)

    def hear(self, site: RateLimitedHost[Item], outcome: Outcome) -> str:
        """Learn from an outcome; returns a new problem, or "" for none."""
        trouble = ""
        if outcome.final_uri and host_in(outcome.final_uri) != site.host:
            return ""  # another server has answered
        if outcome.failure and outcome.status in REFUSALS:
            trouble = str(outcome.status)
            if self._adaptive:
                site.refused()
        elif outcome.failure in _SILENCE or (
            outcome.failure and outcome.status >= _FIRST_SERVER_ERROR
        ):
            site.failures += 1
            trouble = FAILING if site.failures >= self._breaker_after else ""
        else:
            site.failures = 0
            if not outcome.failure and self._adaptive:
                site.answered(outcome.elapsed_us / 1e6)
        if trouble and site.resting:
            return ""  # downloads that were running at the first refusal
        return trouble

    def heed(self, site: RateLimitedHost[Item], crawl_delay: float) -> None:
        """Apply the crawl delay of robots.txt, up to the maximum."""
        site.crawl_delay = min(crawl_delay, self._crawl_delay_cap)

    def rest(self, site: RateLimitedHost[Item]) -> list[Item]:
        """Pause a host: returns all its waiting items."""
        site.resting = True
        items = list(site.waiting)
        self._clear(site, deque())
        return items

    def drop(self, gone: Callable[[Item], bool]) -> None:
        """Remove items of a block that the agent no longer holds."""
        if not self.waiting:
            return
        for site in self._sites.values():
            if site.waiting:
                self._clear(site, deque(item for item in site.waiting if not gone(item)))

    def _clear(self, site: RateLimitedHost[Item], left: deque[Item]) -> None:
        self.ripe -= site.ripe
        self.waiting -= len(site.waiting) - len(left)
        site.waiting = left
        self.ripe += site.ripe

    def next_due(self) -> float | None:
        """When to check again if nothing else happens."""
        return self._queue[0][0] if self._queue else None

    def settle(self, site: RateLimitedHost[Item]) -> None:
        """Queue a host that has items to start, at the time of its next start."""
        if not site.queued and self._open(site):
            site.queued = True
            self._count += 1
            heappush(self._queue, (site.next_start, self._count, site))

    @staticmethod
    def _open(site: RateLimitedHost[Item]) -> bool:
        return bool(site.waiting) and site.running < site.concurrency and not site.asking

    def _forget_idle(self, now: float) -> None:
        """Drop idle hosts whose spacing is over."""
        if len(self._sites) >= REMEMBERED:
            for host, site in list(self._sites.items()):
                if not site.waiting and not site.running and site.next_start <= now:
                    del self._sites[host]
