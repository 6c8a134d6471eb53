"""Decides how a host is treated: from settings, rules and observations to a pace. Pure.

Centers use it when they pack, when they lease and when a report says that a host refuses. It
never reads a clock and stores nothing.
"""

from __future__ import annotations

import msgspec

from skep.model.downloader_kinds import downloader_kind
from skep.model.hosts.host import MARGIN, Pace, SiteRule, is_own
from skep.model.run import RunSettings
from skep.settings import SiteSettings

#: Maximum Retry-After that is obeyed, in seconds.
ASKED_CAP = 86_400.0
#: Doublings of a pause after which every maximum is reached.
_DOUBLINGS = 40
#: Probes for robots.txt of an unreachable host, and the factor that shortens their pauses.
GONE_PROBES = 2
GONE_SOONER = 6.0


class HostPoliteness(msgspec.Struct, frozen=True):
    """The facts about a host that a decision needs."""

    host: str
    rule: SiteRule = SiteRule()
    #: Seconds between starts: learnt from answers, and requested by robots.txt.
    delay: float = 0.0
    crawl_delay: float = 0.0
    #: Time of the next allowed start.
    not_before: float = 0.0
    cooling_until: float = 0.0
    #: Consecutive pauses, and the reason for the last one.
    strikes: int = 0
    reason: str = ""


class Politeness:
    """The settings of politeness, applied to one host at a time."""

    def __init__(self, settings: SiteSettings | None = None) -> None:
        self._settings = settings or SiteSettings()

    def pace(
        self, site: HostPoliteness, run: RunSettings, now: float, *, own: bool = False
    ) -> Pace | None:
        """How the host is treated for a run; None when there is no limit. `own`: only a rule
        that a user set limits it, as for loopback and private addresses."""
        # User code and plug-ins choose what they connect to: only a rule applies to them.
        own = own or is_own(site.host) or not downloader_kind(run.downloader).connects
        if own and not self._chosen(site, run, now):
            return None
        delay = site.delay if self._settings.adaptive else 0.0
        return Pace(
            site.host,
            self._spacing(site, run, delay, own=own),
            self._concurrency(site, run, own=own),
            max(0.0, site.not_before - now),
            self._robots(site, run, own=own),
            delay,
            site.strikes,
        )

    def window(self, pace: Pace, block_size: int) -> int:
        """Number of requests of the host in one block; one when it is a probe."""
        if pace.strikes:
            return 1
        # Compared before the division: a spacing can be almost zero.
        if pace.spacing * block_size <= self._settings.window:
            return block_size
        return max(1, int(self._settings.window / pace.spacing))

    def probe_rest(self, probes: int, cool: float | None, *, gone: bool) -> float:
        """Seconds before robots.txt is fetched again, after `probes` attempts of a run."""
        rest = self.rest(probes, cool)
        return min(rest, self._settings.cooling_first / GONE_SOONER) if gone else rest

    def enough_probes(self, probes: int, *, gone: bool) -> bool:
        """Whether the requests that wait for robots.txt fail now."""
        bound = self._settings.robots_probes
        return probes >= (min(bound, GONE_PROBES) if gone else bound)

    def rest(self, strikes: int, cool: float | None) -> float:
        """Seconds for which a host is paused after `strikes` consecutive problems."""
        if cool is not None:
            return min(cool, ASKED_CAP)
        cool = self._settings.cooling_first * 2 ** min(max(strikes, 1) - 1, _DOUBLINGS)
        return min(cool, self._settings.cooling_cap)

    @staticmethod
    def _chosen(site: HostPoliteness, run: RunSettings, now: float) -> bool:
        """Whether a rule or the run limits a loopback or private address."""
        rule = site.rule
        asked = rule.rate or rule.concurrency or rule.robots or run.host_delay
        return bool(asked or site.crawl_delay or site.cooling_until > now)

    def _spacing(self, site: HostPoliteness, run: RunSettings, delay: float, *, own: bool) -> float:
        rate = site.rule.rate
        if rate is None:
            rate = 0.0 if own else self._settings.rate
        asked = 0.0 if site.rule.robots is False else site.crawl_delay
        crawl_delay = min(asked, self._settings.crawl_delay_cap)
        return max(MARGIN / rate if rate else 0.0, crawl_delay, run.host_delay, delay)

    def _concurrency(self, site: HostPoliteness, run: RunSettings, *, own: bool) -> int:
        default = run.host_concurrency if own else self._settings.concurrency
        return min(site.rule.concurrency or default, run.host_concurrency)

    def _robots(self, site: HostPoliteness, run: RunSettings, *, own: bool) -> bool:
        if site.rule.robots is not None:
            return run.robots and site.rule.robots
        return run.robots and self._settings.robots and not own
