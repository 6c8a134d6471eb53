"""The Prometheus metrics of a center. One registry per center, no globals.

Run by centers. Labels have few, known values: never a URL, a run or a host.
"""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from skep import __version__
from skep.model.lane import Lane
from skep.model.ledger import Ledger
from skep.model.states import RequestState


class Metrics:
    """All metrics, by their documented names; labels never contain a URL or a run."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.accepted = self._counter("skep_requests_accepted", "Requests accepted")
        self.outcomes = self._counter(
            "skep_requests_reported", "Outcomes stored, by failure class", ("failure",)
        )
        self.leased = self._counter("skep_blocks_leased", "Blocks leased to agents")
        self.lease_expired = self._counter(
            "skep_lease_expired", "Blocks taken back from agents that were lost or timed out"
        )
        self.fenced = self._counter(
            "skep_fenced_writes", "Reports refused because their token was stale"
        )
        self.duplicates = self._counter("skep_duplicate_reports", "Duplicate reports")
        self.problems = self._counter("skep_problems", "Error answers, by code", ("code",))
        self.state = self._gauge("skep_requests", "Requests by state", ("state",))
        self.unaccounted = self._gauge(
            "skep_ledger_unaccounted", "Accepted requests that are in no state: always 0"
        )
        self.lane_depth = self._gauge("skep_queue_depth", "Requests in a lane", ("lane",))
        self.agents_up = self._gauge("skep_agents_up", "Agents that are alive")
        self.call_seconds = Histogram(
            "skep_call_duration_seconds",
            "Time to answer, by route",
            ("route",),
            registry=self.registry,
            buckets=(0.005, 0.02, 0.1, 0.5, 2, 10, 40),
        )
        self.deleted = self._counter(
            "skep_retention_deleted", "What retention has deleted", ("kind",)
        )
        self.refused = self._counter(
            "skep_connections_refused", "Connections closed by a limit, by reason", ("reason",)
        )
        self.streams = self._gauge("skep_event_streams", "Open event streams")
        self.streams_cut = self._counter(
            "skep_event_streams_cut", "Event streams cut off because they were read too slowly"
        )
        self.repairs = self._counter(
            "skep_repairs", "Differences between records that were repaired", ("kind",)
        )
        self.differences = self._gauge(
            "skep_differences", "Differences found by the latest check, not repaired yet", ("kind",)
        )
        self.figures_dropped = self._counter(
            "skep_figures_dropped", "Figures of ten seconds that the store never got"
        )
        self.disk_full = self._gauge("skep_disk_full", "1 while the disk is full")
        self.log_lines = self._counter(
            "skep_log_lines",
            "Log lines that this center was sent, by what became of them",
            ("result",),
        )
        self.log_bytes = self._gauge("skep_log_bytes", "Bytes of stored log lines, compressed")
        #: The last ledger that was read; None before the first.
        self.ledger: Ledger | None = None
        build = self._gauge("skep_build_info", "Version of this center", ("version",))
        build.labels(__version__).set(1)

    def _counter(self, name: str, text: str, labels: tuple[str, ...] = ()) -> Counter:
        return Counter(name, text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, labels: tuple[str, ...] = ()) -> Gauge:
        return Gauge(name, text, labels, registry=self.registry)

    def count_refused(self, reason: str) -> None:
        self.refused.labels(reason).inc()

    def show_ledger(self, ledger: Ledger) -> None:
        self.ledger = ledger
        for state in RequestState:
            self.state.labels(state.name.lower()).set(ledger.of(state))
        self.unaccounted.set(ledger.unaccounted)

    def show_deleted(self, counts: Mapping[str, int]) -> None:
        for kind, count in counts.items():
            self.deleted.labels(kind).inc(count)

    def count_repairs(self, kind: str, count: int) -> None:
        self.repairs.labels(kind).inc(count)

    def show_differences(self, counts: Mapping[str, int]) -> None:
        for kind, count in counts.items():
            self.differences.labels(kind).set(count)

    def show_lanes(self, sizes: dict[Lane, int]) -> None:
        for lane in Lane:
            self.lane_depth.labels(lane.label).set(sizes.get(lane, 0))

    def text(self) -> bytes:
        return generate_latest(self.registry)
