"""How a host is treated: from settings, rules and what was learnt to a pace. Pure.

Centers ask it when they pack, when they lease and when a report tells of trouble. It never
looks at a clock and keeps nothing.
"""

from __future__ import annotations

import msgspec

from skep.model.downloader_kinds import downloader_kind
from skep.model.hosts.host import MARGIN, Pace, SiteRule, is_own
from skep.model.run import RunSettings
from skep.settings import SiteSettings

#: A host may ask for patience (Retry-After), but not for ever.
ASKED_CAP = 86_400.0
#: Doublings of a rest beyond which every cap is met.
_DOUBLINGS = 40
#: Tries for robots.txt at a host that is gone, and how much sooner they follow each other.
GONE_PROBES = 2
GONE_SOONER = 6.0


class HostPoliteness(msgspec.Struct, frozen=True):
    """What a center must know of a host to decide."""

    host: str
    rule: SiteRule = SiteRule()
    #: Seconds between starts that answers have taught, and that robots.txt asks for.
    delay: float = 0.0
    crawl_delay: float = 0.0
    #: When the next start is in order.
    not_before: float = 0.0
    cooling_until: float = 0.0
    #: Coolings in a row, and why it cooled last.
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
        that a person set limits it, as for addresses of one's own."""
        # Code and plug-ins decide themselves what they connect to: only a rule concerns them.
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
        """How many requests of the host go into one block; one when it is a probe."""
        if pace.strikes:
            return 1
        # Compared before the division: a spacing may be as near to nothing as floats go.
        if pace.spacing * block_size <= self._settings.window:
            return block_size
        return max(1, int(self._settings.window / pace.spacing))

    def probe_rest(self, probes: int, cool: float | None, *, gone: bool) -> float:
        """Seconds before robots.txt is asked for again, after `probes` tries of a run."""
        rest = self.rest(probes, cool)
        return min(rest, self._settings.cooling_first / GONE_SOONER) if gone else rest

    def enough_probes(self, probes: int, *, gone: bool) -> bool:
        """Whether the requests that wait for robots.txt fail now."""
        bound = self._settings.robots_probes
        return probes >= (min(bound, GONE_PROBES) if gone else bound)

    def rest(self, strikes: int, cool: float | None) -> float:
        """Seconds for which a host is left alone after its `strikes`th trouble in a row."""
        if cool is not None:
            return min(cool, ASKED_CAP)
        cool = self._settings.cooling_first * 2 ** min(max(strikes, 1) - 1, _DOUBLINGS)
        return min(cool, self._settings.cooling_cap)

    @staticmethod
    def _chosen(site: HostPoliteness, run: RunSettings, now: float) -> bool:
        """Has anybody asked for manners towards an address of one's own?"""
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
