"""Checks and cleans the notes about hosts that agents send. Pure."""

from __future__ import annotations

import re

from skep.errors import InvalidInput
from skep.model.block import BlockReport
from skep.model.failures.failure_class import FailureClass
from skep.model.hosts.host import SiteNote, site_of

#: More hosts than one block can contain.
NOTES_LIMIT = 1000
#: Maximum seconds that a host can ask for; the settings limit it further.
SECONDS_LIMIT = 7 * 86_400.0
WAIT_LIMIT = 3600.0
DELAY_LIMIT = 600.0
#: Maximum bytes and microseconds of one report, so that sums of many reports fit.
SUM_LIMIT = 2**47
TROUBLE_LIMIT = 50
DETAIL_LIMIT = 500
_FAILURES = frozenset({"", *FailureClass})
_HOST = re.compile(r"[^\s\x00-\x20\x7f]{1,255}")


def check_notes(report: BlockReport) -> None:
    """Raises InvalidInput for values that no correct agent sends; cuts large values."""
    if len(report.sites) > NOTES_LIMIT:
        raise InvalidInput(f"block {report.block}: {len(report.sites)} host notes are too many")
    for note in report.sites:
        if not _HOST.fullmatch(note.host):
            raise InvalidInput(f"block {report.block}: {note.host[:50]!r} is not a valid host")
        if not _countable(note) or not _timely(note):
            raise InvalidInput(f"block {report.block}: host {note.host}: value out of range")
        _tidy(note, len(report.outcomes))
        _about_robots(note, report.block)


def _about_robots(note: SiteNote, block: int) -> None:
    """Raises InvalidInput for an unknown failure class; cleans the message."""
    if note.failure not in _FAILURES:
        raise InvalidInput(f"block {block}: failure class {note.failure[:50]!r} is not known")
    shown = (letter if letter.isprintable() else " " for letter in note.detail[:DETAIL_LIMIT])
    note.detail = "".join(shown)


def _countable(note: SiteNote) -> bool:
    counts = (note.requests, note.failed, note.refused, note.barred)
    sums = (note.elapsed_us, note.received)
    return min(counts) >= 0 and min(sums) >= 0 and max(sums) <= SUM_LIMIT


def _timely(note: SiteNote) -> bool:
    """Whether no time is negative or NaN, which is not equal to itself."""
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
