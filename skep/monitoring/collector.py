"""Counts what a center does, and writes it as rows of series. Run by centers.

Counting happens in memory, on the path of every report, so it is a few additions. A flush takes
what was counted and stores it under a name of its own: the same flush can be sent again and is
stored once. A killed center loses what it counted since its last flush, and nothing is counted
twice. Increments belong to the time of their flush, whatever the clock did in between.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

from skep.errors import Unavailable
from skep.model.block import BlockReport
from skep.model.monitoring.buckets import FINE, bounded, bucket, plain_label
from skep.model.monitoring.series import (
    ACCEPTED,
    DEAD,
    DONE,
    FAILED,
    FAILURE,
    HOSTS,
    LATENCY,
    LEASED,
    OTHER,
    RECEIVED,
    SENT,
    STATUS,
    Cell,
    Cells,
    SeriesRow,
)
from skep.monitoring.latency import interval_of
from skep.runtime.clock import Clock
from skep.store.ports.blocks import SettleResult
from skep.store.ports.monitoring import SeriesStore

log = logging.getLogger(__name__)

K = TypeVar("K", int, str)

#: Hosts and runs that are counted apart between two flushes; further ones count as `other`, or
#: only in the sum of all runs.
HOSTS_COUNTED = 2000
RUNS_COUNTED = 1000
#: Flushes that wait for a store that does not answer; the oldest are dropped beyond.
WAITING = 30


def _nothing() -> None:
    """For a center without metrics."""


class Counters:
    """What was counted for one run, or for all."""

    __slots__ = (
        *("answers", "dead", "done", "failed", "failures", "hosts"),
        *("latency", "received", "sent", "statuses"),
    )

    def __init__(self) -> None:
        self.answers = self.done = self.failed = self.dead = self.received = self.sent = 0
        self.statuses: dict[int, int] = {}
        self.failures: dict[str, int] = {}
        self.hosts: dict[str, int] = {}
        self.latency: dict[int, int] = {}

    def add(self, other: Counters) -> None:
        """Add what another one counted."""
        self.answers += other.answers
        self.done += other.done
        self.failed += other.failed
        self.dead += other.dead
        self.received += other.received
        self.sent += other.sent
        _add(self.statuses, other.statuses)
        _add(self.failures, other.failures)
        _add(self.latency, other.latency)
        for host, count in other.hosts.items():
            self.count_host(host, count)

    def count_host(self, host: str, count: int) -> None:
        if host not in self.hosts and len(self.hosts) >= HOSTS_COUNTED:
            host = OTHER
        self.hosts[host] = self.hosts.get(host, 0) + count

    def cells(self) -> Cells:
        """Cells that are not zero."""
        plain = {DONE: self.done, FAILED: self.failed, DEAD: self.dead}
        plain |= {RECEIVED: self.received, SENT: self.sent}
        found: Cells = {name: {"": (float(n), 1)} for name, n in plain.items() if n}
        latency = {str(number): n for number, n in self.latency.items()}
        hosts = {plain_label(host): n for host, n in self.hosts.items()}
        statuses = {str(status or "none"): n for status, n in self.statuses.items()}
        for name, counts in (
            (STATUS, statuses),
            (FAILURE, self.failures),
            (LATENCY, latency),
            (HOSTS, hosts),
        ):
            if counts:
                found[name] = {label: (float(n), 1) for label, n in counts.items()}
        return bounded(found)


def _add(into: dict[K, int], counts: dict[K, int]) -> None:
    for key, count in counts.items():
        into[key] = into.get(key, 0) + count


class Collector:
    """The counters of one center process."""

    def __init__(
        self,
        series: SeriesStore,
        clock: Clock,
        process: str,
        runs: int,
        *,
        enabled: bool = True,
        dropped: Callable[[], None] = _nothing,
    ) -> None:
        """`process`: a name that no other process ever has. `runs`: busiest runs with rows.
        `dropped` is called for each flush that a store which does not answer never gets."""
        self._series = series
        self._clock = clock
        self._process = process
        self._runs_kept = runs
        self._enabled = enabled
        self._number = 0
        self._all = Counters()
        self._runs: dict[str, Counters] = {}
        self._counts: dict[str, int] = {}
        self._levels: dict[str, dict[str, Cell]] = {}
        self._waiting: deque[list[SeriesRow]] = deque()
        self._dropped = dropped

    def accepted(self, count: int) -> None:
        self._counts[ACCEPTED] = self._counts.get(ACCEPTED, 0) + count

    def leased(self, blocks: int) -> None:
        self._counts[LEASED] = self._counts.get(LEASED, 0) + blocks

    def level(self, name: str, label: str, value: float) -> None:
        """The value of something at this time."""
        self._levels.setdefault(name, {})[plain_label(label)] = (float(value), 1)

    def reported(self, reports: Sequence[BlockReport], results: Sequence[SettleResult]) -> None:
        """Count the outcomes that were stored."""
        if not self._enabled:
            return
        for report, result in zip(reports, results, strict=True):
            if result.stored:
                self._count(report, result)

    def _count(self, report: BlockReport, result: SettleResult) -> None:
        one = _counted(report, result)
        self._all.add(one)
        scope = self._runs.get(result.run)
        if scope is not None:
            scope.add(one)
        elif len(self._runs) < RUNS_COUNTED:
            self._runs[result.run] = one

    async def flush(self) -> int:
        """Store what was counted; returns the number of rows. A store that does not answer gets
        the same rows again with the next flush."""
        rows = self._taken()
        self._waiting.append(rows)
        while len(self._waiting) > WAITING:
            self._waiting.popleft()
            self._dropped()
            log.warning("figures of ten seconds are dropped: the store does not answer")
        stored = 0
        while self._waiting:
            try:
                await self._series.add(self._waiting[0])
            except Unavailable as error:
                log.debug("figures wait for the store: %s", error.detail)
                return stored
            stored += len(self._waiting.popleft())
        return stored

    def _taken(self) -> list[SeriesRow]:
        at, self._number = bucket(self._clock.now(), FINE.step), self._number + 1
        writer = f"{self._process}.{self._number}"
        cells = self._all.cells()
        cells |= {name: {"": (float(n), 1)} for name, n in self._counts.items()}
        cells |= bounded(self._levels)
        busiest = sorted(self._runs.items(), key=lambda pair: (-pair[1].answers, pair[0]))
        rows = [SeriesRow(FINE.step, at, "", writer, cells)]
        rows += [
            SeriesRow(FINE.step, at, run, writer, scope.cells())
            for run, scope in busiest[: self._runs_kept]
        ]
        self._all, self._runs, self._counts, self._levels = Counters(), {}, {}, {}
        return rows


def _counted(report: BlockReport, result: SettleResult) -> Counters:
    """One pass: this runs for every outcome."""
    scope = Counters()
    outcomes = report.outcomes[: result.stored]
    statuses, latency, received, sent = scope.statuses, scope.latency, 0, 0
    for outcome in outcomes:
        status = outcome.status
        statuses[status] = statuses.get(status, 0) + 1
        interval = interval_of(outcome.elapsed_us)
        latency[interval] = latency.get(interval, 0) + 1
        received += outcome.received
        sent += outcome.sent
        if outcome.failure:
            scope.failures[outcome.failure] = scope.failures.get(outcome.failure, 0) + 1
    scope.received, scope.sent, scope.answers = received, sent, len(outcomes)
    scope.failed = sum(scope.failures.values())
    scope.done, scope.dead = len(outcomes) - scope.failed, result.dead
    for note in report.sites:
        if note.requests:
            scope.count_host(note.host, note.requests)
    return scope
