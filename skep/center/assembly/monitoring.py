"""Assembles figures over time, alerts and failure groups for one center.

Run once when a center is built; nothing starts here.
"""

from __future__ import annotations

from dataclasses import dataclass

from skep.bus.ports import Bus
from skep.center.disk_space import DiskSpace
from skep.center.foundation import Foundation
from skep.center.metrics import Metrics
from skep.fleet.roster import Roster
from skep.lanes.dispatch import lane_limits
from skep.model.lane import Lane
from skep.model.monitoring.series import AGENTS, DISK, LANES, LANES_FILL, LEDGER
from skep.model.states import RequestState
from skep.monitoring.alerting import Alerting, AlertNotices
from skep.monitoring.collector import Collector
from skep.monitoring.measures import Measures
from skep.monitoring.monitor import Monitor, MonitorParts
from skep.monitoring.run_judge import RunJudge


@dataclass(frozen=True, slots=True)
class MonitoringAssembly:
    """Counters, and the loop that writes them and evaluates rules."""

    collector: Collector
    monitor: Monitor
    metrics: Metrics

    def accepted(self, count: int) -> None:
        """Count requests that were accepted."""
        self.metrics.accepted.inc(count)
        self.collector.accepted(count)

    def leased(self, blocks: int) -> None:
        """Count blocks that agents have leased."""
        self.metrics.leased.inc(blocks)
        self.collector.leased(blocks)


class Levels:
    """Samples the levels of one center: its disk, and what is read from store and bus."""

    def __init__(
        self, base: Foundation, collector: Collector, roster: Roster, metrics: Metrics
    ) -> None:
        self._name = base.name
        self._bus: Bus = base.bus
        self._limits = lane_limits(base.settings.lanes)
        self._collector = collector
        self._roster = roster
        self._metrics = metrics

    def of_disk(self, disk: DiskSpace) -> None:
        """Free bytes of the fullest disk of this center."""
        try:
            self._collector.level(DISK, self._name, min(free for _, free in disk.figures()))
        except (OSError, ValueError):  # the disk is gone; `disk` raises an alert
            return

    async def of_all(self) -> None:
        """Lanes, agents and the ledger; the ledger is the last one that the gauges have read."""
        sizes = await self._bus.lanes.sizes()
        for lane in Lane:
            size, limit = sizes.get(lane, 0), self._limits[lane]
            self._collector.level(LANES, lane.label, size)
            self._collector.level(LANES_FILL, lane.label, size / max(limit, 1))
        views = self._roster.views
        alive = sum(self._roster.alive(view.id) for view in views)
        self._collector.level(AGENTS, "alive", alive)
        self._collector.level(AGENTS, "dead", len(views) - alive)
        if (ledger := self._metrics.ledger) is not None:
            for state in RequestState:
                self._collector.level(LEDGER, state.name.lower(), ledger.of(state))


def build_monitoring(
    base: Foundation, roster: Roster, metrics: Metrics, disk: DiskSpace
) -> MonitoringAssembly:
    """The name of the process has its start time and a random number: two processes of one center
    never write the same row."""
    store, clock, settings = base.store, base.clock, base.settings.monitoring
    started = int(clock.now() * 1000)
    process = f"{base.name[:31]}-{started:x}-{base.rng.getrandbits(32):08x}"
    collector = Collector(
        store.monitoring.series,
        clock,
        process,
        settings.runs,
        enabled=settings.enabled,
        dropped=metrics.figures_dropped.inc,
    )
    levels = Levels(base, collector, roster, metrics)
    parts = MonitorParts(
        collector,
        Alerting(store, Measures(store, roster, clock)),
        AlertNotices(store, base.settings.notices),
        RunJudge(store),
        lambda: levels.of_disk(disk),
        levels.of_all,
    )
    monitor = Monitor(process, settings, store, clock, parts)
    return MonitoringAssembly(collector, monitor, metrics)
