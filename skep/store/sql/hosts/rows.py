"""Rows of `sites`: read for decisions, created when missing, counted. Run by centers only.

Counts of one transaction are collected and written at its very end, sorted by host: a busy
host's row is locked for a moment only, and two centers lock in the same order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import sqlalchemy as sa

from skep.model.hosts.host import SiteNote, SiteRule
from skep.model.hosts.politeness import HostPoliteness
from skep.store.sql.engine.dialect import Dialect
from skep.store.sql.engine.running_counts import Sums
from skep.store.sql.schema.hosts import sites

#: Maximum hosts in one statement.
HOST_CHUNK = 500
_COUNTS = ("requests", "failed", "refused", "barred", "deferred", "received", "elapsed_us")
_COLUMNS = (
    *("host", "delay", "crawl_delay", "not_before", "cooling_until", "reason", "strikes"),
    *_COUNTS,
    "last_at",
)
_FACTS = sa.select(
    sites.c.host,
    sites.c.rate,
    sites.c.concurrency,
    sites.c.robots,
    sites.c.delay,
    sites.c.crawl_delay,
    sites.c.not_before,
    sites.c.cooling_until,
    sites.c.strikes,
    sites.c.reason,
)


class HostCounts:
    """Counts of hosts, summed up until the transaction ends."""

    __slots__ = ("_by_host",)

    def __init__(self) -> None:
        self._by_host: dict[str, list[float]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_host)

    def add(self, note: SiteNote, deferred: int, now: float) -> None:
        """Add one note of a report that is stored."""
        counts = (note.requests, note.failed, note.refused, note.barred, deferred)
        self._add(note.host, (*counts, note.received, note.elapsed_us, now))

    def update(self, other: HostCounts) -> None:
        """Add the counts of another caller."""
        for host, counts in other._by_host.items():
            self._add(host, counts)

    def _add(self, host: str, counts: Sequence[float]) -> None:
        known = self._by_host.get(host)
        if known is None:
            self._by_host[host] = list(counts)
            return
        for place in range(len(_COUNTS)):
            known[place] += counts[place]
        known[-1] = max(known[-1], counts[-1])

    def sums(self) -> Sums:
        """The sums, sorted by host; a host without a row gets one."""
        rows = [
            (*_new(host)[: -1 - len(_COUNTS)], *counts)
            for host, counts in sorted(self._by_host.items())
        ]
        return Sums(sites, _COLUMNS, 1, _COUNTS, rows, sets=("last_at",))


def make_hosts(connection: sa.Connection, dialect: Dialect, hosts: Collection[str]) -> None:
    """Create a row for every host that has none."""
    known: set[str] = set()
    for chunk in in_chunks(sorted(hosts)):
        query = sa.select(sites.c.host).where(sites.c.host.in_(chunk))
        known.update(connection.execute(query).scalars())
    rows = [_new(host) for host in sorted(set(hosts) - known)]
    dialect.insert_new(connection, sites, _COLUMNS, rows)


def _new(host: str) -> tuple[Any, ...]:
    return (host, 0.0, 0.0, 0.0, 0.0, "", 0, *(0 for _ in _COUNTS), 0.0)


def in_chunks(hosts: Sequence[str]) -> Iterator[Sequence[str]]:
    """Splits hosts, because the number of parameters of a statement is limited."""
    for start in range(0, len(hosts), HOST_CHUNK):
        yield hosts[start : start + HOST_CHUNK]


def hosts_of(
    connection: sa.Connection, hosts: Collection[str], *, lock: bool = False
) -> dict[str, HostPoliteness]:
    """The facts about these hosts; unknown hosts are absent."""
    found: dict[str, HostPoliteness] = {}
    for chunk in in_chunks(sorted(hosts)):
        query = _FACTS.where(sites.c.host.in_(chunk))
        if lock:
            query = query.order_by(sites.c.host).with_for_update()
        for row in connection.execute(query):
            found[row.host] = host_in_row(row)
    return found


def host_in_row(row: Any) -> HostPoliteness:
    """The facts in a row."""
    return HostPoliteness(
        row.host,
        rule_in(row),
        row.delay,
        row.crawl_delay,
        row.not_before,
        row.cooling_until,
        row.strikes,
        row.reason,
    )


def rule_in(row: Any) -> SiteRule:
    """The rule in a row."""
    robots = None if row.robots is None else bool(row.robots)
    return SiteRule(row.rate, row.concurrency, robots)
