"""Notes about hosts, as agents send them: refused when absurd, made plain. Pure."""

from __future__ import annotations

import re

from skep.errors import InvalidInput
from skep.model.block import BlockReport
from skep.model.hosts.host import SiteNote, site_of
from skep.model.states import FailureClass

#: More hosts than one block can hold.
NOTES_LIMIT = 1000
#: Seconds beyond which a wish is not taken seriously; the settings bound it further.
SECONDS_LIMIT = 7 * 86_400.0
WAIT_LIMIT = 3600.0
DELAY_LIMIT = 600.0
#: Bytes and microseconds that one report can be about, with room for many reports.
SUM_LIMIT = 2**47
TROUBLE_LIMIT = 50
DETAIL_LIMIT = 500
_FAILURES = frozenset({"", *FailureClass})
_HOST = re.compile(r"[^\s\x00-\x20\x7f]{1,255}")


def check_notes(report: BlockReport) -> None:
    """Raises InvalidInput for what no honest agent sends; cuts what is merely too much."""
    if len(report.sites) > NOTES_LIMIT:
        raise InvalidInput(f"block {report.block}: {len(report.sites)} notes about hosts")
    for note in report.sites:
        if not _HOST.fullmatch(note.host):
            raise InvalidInput(f"block {report.block}: {note.host[:50]!r} is not a host")
        if not _countable(note) or not _timely(note):
            raise InvalidInput(f"block {report.block}: a number of {note.host} is absurd")
        _tidy(note, len(report.outcomes))
        _about_robots(note, report.block)


def _about_robots(note: SiteNote, block: int) -> None:
    """Raises InvalidInput for a class that does not exist; makes the sentence plain."""
    if note.failure not in _FAILURES:
        raise InvalidInput(f"block {block}: failure {note.failure[:50]!r} is not known")
    shown = (letter if letter.isprintable() else " " for letter in note.detail[:DETAIL_LIMIT])
    note.detail = "".join(shown)


def _countable(note: SiteNote) -> bool:
    counts = (note.requests, note.failed, note.refused, note.barred)
    sums = (note.elapsed_us, note.received)
    return min(counts) >= 0 and min(sums) >= 0 and max(sums) <= SUM_LIMIT


def _timely(note: SiteNote) -> bool:
    """No time is negative; one that is no number is not equal to itself."""
    times = (note.delay, note.crawl_delay, note.wait, note.cool or 0.0)
    return all(time >= 0 for time in times)


def _tidy(note: SiteNote, outcomes: int) -> None:
    note.host = site_of(note.host)
    note.requests = min(note.requests, outcomes)
    note.failed = min(note.failed, note.requests)
    note.refused = min(note.refused, note.requests)
    note.barred = min(note.barred, note.requests)
    note.delay = min(note.delay, DELAY_LIMIT)
    note.crawl_delay = min(note.crawl_delay, SECONDS_LIMIT)
    note.wait = min(note.wait, WAIT_LIMIT)
    if note.cool is not None:
        note.cool = min(note.cool, SECONDS_LIMIT)
    shown = (letter if letter.isprintable() else " " for letter in note.trouble[:TROUBLE_LIMIT])
    note.trouble = "".join(shown)
