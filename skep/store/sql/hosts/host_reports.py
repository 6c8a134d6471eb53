"""Applies what reports say about hosts to their rows. Run by centers, inside `settle`.

Only the block that holds a host can change its state; counts are taken from all blocks. A note
counts once, with its report: a duplicate of that report changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from skep.model.failures.failure_class import FailureClass
from skep.model.hosts.host import FAILING, ROBOTS, SiteNote
from skep.model.hosts.politeness import HostPoliteness, Politeness
from skep.model.request import Outcome
from skep.store.sql.engine.database import Tx
from skep.store.sql.engine.dialect import id_list
from skep.store.sql.hosts.holds import free_hosts, held_by
from skep.store.sql.hosts.robots_probes import Probes, forget_probes, note_probe, still_given_up
from skep.store.sql.hosts.rows import hosts_of
from skep.store.sql.schema.hosts import sites

#: Statuses by which a host asks for a pause.
REFUSALS = frozenset({429, 503})
#: Minimum delay of a deferred request, in seconds.
DEFERRED_LEAST = 1.0
#: Maximum characters of the reason of a pause.
REASON_LIMIT = 200

_LEARN = (
    sa.update(sites)
    .where(sites.c.host == sa.bindparam("site"))
    .values({name: sa.bindparam(f"to_{name}") for name in (
        "delay", "crawl_delay", "cooling_until", "strikes", "reason"
    )})
)  # fmt: skip


class HostReports:
    """The notes of one call of `settle`."""

    def __init__(
        self, tx: Tx, block_ids: Sequence[int], now: float, politeness: Politeness
    ) -> None:
        self._tx = tx
        self._now = now
        self._politeness = politeness
        #: block -> its hosts with their spacing.
        self._held = held_by(tx.connection, block_ids)
        self._sites: dict[str, HostPoliteness] | None = None
        self._changed: set[str] = set()
        #: Hosts that are free, with the seconds before their next start.
        self._free: dict[str, float] = {}
        self._waits: dict[str, float] = {}

    def lets_go(self, block: int, notes: Iterable[SiteNote]) -> bool:
        """Whether one of these notes releases a host that the block holds."""
        held = self._held.get(block, {})
        return any(note.left and note.host in held for note in notes)

    def hear(self, block: int, run: int, note: SiteNote) -> float:
        """Learn from a note; returns when its deferred requests are due again."""
        held = self._held.get(block, {})
        if note.host not in held:
            rest = self._politeness.rest(1, note.cool) if note.trouble else 0.0
            return self._now + max(rest, DEFERRED_LEAST)
        site = self._learn(self._site(note.host), note, self._probes(run, note))
        if note.left:
            del held[note.host]
            self._free[note.host] = note.wait
        else:
            self._waits[note.host] = note.wait
        return max(site.cooling_until, self._now + DEFERRED_LEAST)

    def count(self, notes: Sequence[SiteNote], deferred: Sequence[int]) -> None:
        """Count the notes of a report whose outcomes are all new."""
        for note, put_off in zip(notes, deferred, strict=True):
            self._tx.sites.add(note, put_off, self._now)

    def count_some(
        self, notes: Sequence[SiteNote], deferred: Sequence[int], outcomes: Sequence[Outcome]
    ) -> None:
        """Count new outcomes one by one, because some were known before."""
        for note, put_off in zip(notes, deferred, strict=True):
            if put_off:
                self._tx.sites.add(SiteNote(note.host), put_off, self._now)
        if not outcomes:
            return
        ids = id_list(outcome.id for outcome in outcomes)
        rows = self._tx.sql(f"SELECT id, host FROM requests WHERE id IN ({ids})")  # noqa: S608
        hosts = {row.id: row.host for row in rows}
        for outcome in outcomes:
            self._tx.sites.add(_note_of(hosts[outcome.id], outcome), 0, self._now)

    def write(self, ended: Iterable[int]) -> None:
        """Release hosts of notes and ended blocks, and store what was learnt."""
        for block in ended:
            for host, spacing in self._held.get(block, {}).items():
                self._free[host] = max(self._waits.get(host, 0.0), spacing)
        free_hosts(self._tx, self._free, self._now)
        if self._changed and self._sites is not None:
            rows = [_row(self._sites[host]) for host in sorted(self._changed)]
            self._tx.execute(_LEARN, rows)

    def _site(self, host: str) -> HostPoliteness:
        if self._sites is None:
            # All at once and in the order of hosts, so that two centers do not deadlock.
            hosts = [host for held in self._held.values() for host in held]
            self._sites = hosts_of(self._tx.connection, hosts, lock=True)
        return self._sites.get(host) or HostPoliteness(host)

    def _probes(self, run: int, note: SiteNote) -> Probes | None:
        """The attempts of a run for a host or its robots.txt, after another failure."""
        if note.failure:
            return note_probe(self._tx, run, note, self._politeness, self._now)
        if note.requests > note.failed:
            if self._site(note.host).strikes:
                forget_probes(self._tx, run, note.host)
        elif note.requests:
            still_given_up(self._tx, run, note.host, self._now)
        return None

    def _learn(self, site: HostPoliteness, note: SiteNote, probes: Probes | None) -> HostPoliteness:
        changes: dict[str, float | int | str] = {}
        if note.requests or note.trouble:
            changes["delay"] = note.delay
        if note.crawl_delay:
            changes["crawl_delay"] = note.crawl_delay
        if probes is not None:
            changes |= self._after_probe(site, note, probes)
        elif note.trouble:
            strikes = site.strikes + 1
            rest = self._now + self._politeness.rest(strikes, note.cool)
            changes |= {"strikes": strikes, "cooling_until": rest, "reason": note.trouble}
        elif site.strikes and note.requests > note.failed and site.cooling_until <= self._now:
            changes |= {"strikes": 0, "cooling_until": 0.0, "reason": ""}
        learnt: HostPoliteness = msgspec.structs.replace(site, **changes)
        if learnt != site and self._sites is not None:
            self._sites[site.host] = learnt
            self._changed.add(site.host)
        return learnt

    def _after_probe(self, site: HostPoliteness, note: SiteNote, probes: Probes) -> dict[str, Any]:
        """The run waits for its next attempt; when it has given up, the host is not paused."""
        if probes.given_up:
            return {"strikes": 0, "cooling_until": 0.0, "reason": ""}
        rest = self._politeness.probe_rest(probes.tries, note.cool, gone=note.gone)
        word = FAILING if note.trouble == FAILING else ROBOTS
        reason = f"{word}: {note.detail}"[:REASON_LIMIT]
        until = self._now + rest
        return {"strikes": site.strikes + 1, "cooling_until": until, "reason": reason}


def _note_of(host: str, outcome: Outcome) -> SiteNote:
    return SiteNote(
        host,
        requests=1,
        failed=int(bool(outcome.failure)),
        refused=int(bool(outcome.failure) and outcome.status in REFUSALS),
        barred=int(outcome.failure == FailureClass.ROBOTS),
        elapsed_us=outcome.elapsed_us,
        received=outcome.received,
    )


def _row(site: HostPoliteness) -> dict[str, float | int | str]:
    return {
        "site": site.host,
        "to_delay": site.delay,
        "to_crawl_delay": site.crawl_delay,
        "to_cooling_until": site.cooling_until,
        "to_strikes": site.strikes,
        "to_reason": site.reason,
    }
