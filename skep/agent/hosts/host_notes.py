"""Collects notes about hosts for a block's next report. Runs on the agent's event loop.

Every outcome passes through `count`: it must stay as cheap as a few additions.
"""

from __future__ import annotations

from skep.agent.hosts.rate_limited_requests import REFUSALS
from skep.model.hosts.host import SiteNote, site_of
from skep.model.request import Outcome


class HostNotes:
    """One note per host, created with its first outcome."""

    __slots__ = ("_by_host",)

    def __init__(self) -> None:
        #: By requested name: several names can share the note of one host.
        self._by_host: dict[str, SiteNote] = {}

    def __bool__(self) -> bool:
        return bool(self._by_host)

    def of(self, host: str) -> SiteNote:
        """The note of a host, by any of its names."""
        return self._by_host.get(host) or self._begin(host)

    def count(self, host: str, outcome: Outcome) -> None:
        """Count an outcome."""
        note = self._by_host.get(host) or self._begin(host)
        note.requests += 1
        note.elapsed_us += outcome.elapsed_us
        note.received += outcome.received
        if outcome.failure:
            note.failed += 1
            if outcome.status in REFUSALS:
                note.refused += 1

    def take(self) -> list[SiteNote]:
        """All notes, each once; new ones start afterwards."""
        notes = {note.host: note for note in self._by_host.values()}
        self._by_host = {}
        return list(notes.values())

    def _begin(self, host: str) -> SiteNote:
        site = site_of(host)
        note = self._by_host.get(site)
        if note is None:
            note = self._by_host[site] = SiteNote(site)
        self._by_host[host] = note
        return note
