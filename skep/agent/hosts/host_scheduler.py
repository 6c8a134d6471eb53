"""Starts the requests of rate-limited hosts when they are due, after robots.txt.

Runs on the agent's event loop, inside the rounds of the download starter. Nothing is started while
the agent does not know that the center considers it alive: another agent may have its hosts by
then. It never waits, and never loses a request that left the queue.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable
from functools import partial

from skep.agent.hosts.rate_limited_requests import RateLimitedHost, RateLimitedRequests
from skep.agent.hosts.robots import (
    LONG_BYTES,
    Robots,
    Rules,
    Silence,
    is_gone,
    judge,
    place_of,
    product_token,
    read,
    robots_settings,
)
from skep.agent.work.held_blocks import Gated, HeldBlock, HeldBlocks
from skep.agent.work.run_downloaders import RunDownloaders, start
from skep.downloaders.ports import Downloader, Fetched, Paced
from skep.model.failures.failure_class import FailureClass
from skep.model.hosts.host import FAILING, NO_ROBOTS, SiteNote
from skep.model.request import Outcome, Work
from skep.model.run import RunSettings
from skep.settings import SiteSettings

log = logging.getLogger(__name__)


class HostScheduler:
    """`admit` starts due requests."""

    def __init__(
        self,
        holding: HeldBlocks,
        downloaders: RunDownloaders,
        settings_of: Callable[[str], RunSettings | None],
        alive: Callable[[], bool],
        robots: Robots | None = None,
    ) -> None:
        self._holding = holding
        self._gate = holding.gate
        self._downloaders = downloaders
        self._settings_of = settings_of
        self._alive = alive
        self._now = holding.monotonic
        self.robots = Robots() if robots is None else robots
        self._asked = itertools.count(-1, -1)

    def admit(self, limit: int) -> int:
        """Start up to `limit` due requests; return how many were started."""
        gate, seen = self._gate, 0
        if not gate.waiting or not self._alive():
            return 0
        now = self._now()
        while seen < limit and (site := gate.due(now)) is not None:
            seen += 1
            self._start_due(site, now)
            gate.settle(site)
        return seen

    def next_due(self) -> float | None:
        """Seconds until the next request is due; None when none waits."""
        due = self._gate.next_due()
        return None if due is None else due - self._now()

    def _start_due(self, site: RateLimitedHost[Gated], now: float) -> None:
        if site.failure:
            self._give_up(site)
            return
        block, work = site.waiting[0]
        settings = self._settings_of(block.run) or RunSettings()
        if site.robots and (place := place_of(work.uri)) is not None:
            origin, url = place
            rules = self.robots.rules_of(origin, now)
            if rules is None:
                self._ask(site, origin, block.run, settings, now)
                return
            name = product_token(settings.headers)
            self._gate.heed(site, rules.crawl_delay(name))
            if not rules.allow(url, name):
                self._bar(site, f"{origin}/robots.txt does not allow it to {name}")
                return
            if site.next_start > now:  # by the crawl delay that was just read
                return
        self._gate.take(site)
        self._gate.begin(site, now)
        block.admit()
        downloader = self._downloaders.of(block.run, settings)
        _start(downloader, site, block.run, work, partial(self._ended, site, block))

    def _ended(self, site: RateLimitedHost[Gated], block: HeldBlock, fetched: Fetched) -> None:
        """A download from a rate-limited host has ended: learn from it, then store it."""
        outcome = fetched.outcome
        fetched.host = site.host
        self._gate.leave(site, fetched.began)
        if outcome.failure != FailureClass.LOST:
            if trouble := self._gate.hear(site, outcome):
                self._leave_alone(site, trouble, outcome.retry_after, block)
                if trouble == FAILING and not outcome.status and not block.gone:
                    _no_answer(block.notes.of(site.host), outcome)
            if not block.gone:
                block.ended_at(site.host)
        block.done(fetched)

    def _leave_alone(
        self, site: RateLimitedHost[Gated], trouble: str, cool: float | None, seen_in: HeldBlock
    ) -> None:
        """Requests that wait for this host go back to the center, which schedules them again."""
        items = self._gate.rest(site)
        log.info("pausing %s: %s; %d requests deferred", site.host, trouble, len(items))
        for block, work in items:
            block.defer(site.host, work.id)
        for block in {seen_in, *(block for block, _ in items)}:
            if not block.gone:
                block.trouble_at(site.host, trouble, cool)

    def _end(self, site: RateLimitedHost[Gated], failure: str, detail: str) -> HeldBlock:
        """The first waiting request ends without being sent."""
        block, work = self._gate.take(site)
        block.admit()
        block.ended_at(site.host)
        block.done(Fetched(Outcome(work.id, failure, detail=detail), host=site.host))
        return block

    def _bar(self, site: RateLimitedHost[Gated], detail: str) -> None:
        block = self._end(site, FailureClass.ROBOTS, detail)
        block.notes.of(site.host).barred += 1

    def _ask(
        self, site: RateLimitedHost[Gated], origin: str, run: str, settings: RunSettings, now: float
    ) -> None:
        """Request robots.txt with the settings of the run; it counts as a start."""
        site.asking = True
        self._gate.begin(site, now)
        work = Work(next(self._asked), f"{origin}/robots.txt")
        downloader = self._for_robots(run, settings)
        _start(downloader, site, run, work, partial(self._robots_came, site, origin))

    def _for_robots(self, run: str, settings: RunSettings) -> Downloader:
        """The downloader of the run, unless it is for pages only."""
        fitting = robots_settings(settings)
        name = run if fitting == settings else f"{run} robots.txt"
        return self._downloaders.of(name, fitting)

    def _robots_came(self, site: RateLimitedHost[Gated], origin: str, fetched: Fetched) -> None:
        self._gate.leave(site, fetched.began)
        said = judge(fetched)
        if isinstance(said, Silence):
            site.asking = False
            self._no_robots(site, origin, said)
        elif len(said.content) > LONG_BYTES:
            loop = asyncio.get_running_loop()
            reading = loop.run_in_executor(None, read, said)
            reading.add_done_callback(lambda done: self._robots_read(site, origin, done.result()))
        else:
            self._robots_read(site, origin, read(said))

    def _robots_read(self, site: RateLimitedHost[Gated], origin: str, rules: Rules) -> None:
        self.robots.keep(origin, rules, self._now())
        site.asking = False
        self._gate.settle(site)
        self._holding.changed()

    def _no_robots(self, site: RateLimitedHost[Gated], origin: str, said: Silence) -> None:
        """Defer every request of the host. The center counts the attempts of the run, and decides
        when they are enough."""
        if site.waiting:
            block = site.waiting[0][0]
            self._leave_alone(site, said.trouble, said.cool, block)
            if said.failure != FailureClass.LOST and not block.gone:
                note = block.notes.of(site.host)
                note.failure, note.gone = said.failure, said.gone
                note.detail = f"{NO_ROBOTS} ({origin}): {said.detail}"
        self._holding.changed()

    def _give_up(self, site: RateLimitedHost[Gated]) -> None:
        """The center has given up on robots.txt: all waiting requests fail together."""
        while site.waiting:
            self._end(site, site.failure, site.detail)


def _no_answer(note: SiteNote, outcome: Outcome) -> None:
    """A dead host: the center counts the attempts of the run, and decides when they are enough."""
    note.failure, note.gone = outcome.failure, is_gone(outcome.failure, outcome.detail)
    note.detail = f"the host does not answer: {outcome.detail}"


def _start(
    downloader: Downloader,
    site: RateLimitedHost[Gated],
    run: str,
    work: Work,
    done: Callable[[Fetched], None],
) -> None:
    if isinstance(downloader, Paced):
        downloader.pace(site.host, site.spacing)
    start(downloader, run, work, done)


def gate_of(sites: SiteSettings) -> RateLimitedRequests[Gated]:
    """A queue with these settings."""
    return RateLimitedRequests(
        adaptive=sites.adaptive,
        breaker_after=sites.breaker_after,
        crawl_delay_cap=sites.crawl_delay_cap,
    )
