"""One step of monitoring, every ten seconds: write figures; if this center leads, the rest.

Run by centers, in a loop. Of all centers, the one that holds the lease rolls up, follows failure
groups, compares finished runs, evaluates rules and deletes what is old. Every write of a leader
carries its lease, so a center that was paused cannot disturb its successor.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from skep.errors import LostLease, SkepError
from skep.model.monitoring.buckets import FINE, RESOLUTIONS, bucket
from skep.monitoring.alerting import Alerting, AlertNotices
from skep.monitoring.collector import Collector
from skep.monitoring.rules import in_force
from skep.monitoring.run_judge import KIND, RunJudge
from skep.runtime.clock import Clock
from skep.settings import MonitoringSettings
from skep.store.ports import Store
from skep.store.ports.monitoring import MonitorLease

log = logging.getLogger(__name__)

#: Seconds between two steps.
EVERY = float(FINE.step)
LEASE = "monitoring"
LEASE_SECONDS = 30.0
#: Seconds for the last flush of a center that stops.
STOP_SECONDS = 2.0
#: Rows that are rolled up, groups that are followed, and rows that are deleted, per call.
ROLLED = 500
FOLLOWED = 500
DELETED = 1000
#: Calls of one kind in one step.
ROUNDS = 20
#: Seconds between two deletions of old rows.
TRIM_EVERY = 600.0
#: Seconds for which the history of runs and of failure groups is kept.
HISTORY_KEPT = 400 * 86_400.0
GROUPS_KEPT = 90 * 86_400.0


@dataclass(frozen=True, slots=True)
class MonitorParts:
    """What a step uses."""

    collector: Collector
    alerting: Alerting
    notices: AlertNotices
    judge: RunJudge
    #: Samples levels of this center, and those of the installation when it leads.
    sample_own: Callable[[], None]
    sample_all: Callable[[], Awaitable[None]]


class Monitor:
    """The monitoring of one center."""

    def __init__(
        self,
        holder: str,
        settings: MonitoringSettings,
        store: Store,
        clock: Clock,
        parts: MonitorParts,
    ) -> None:
        """`holder`: unique for this process."""
        self._holder = holder
        self._settings = settings
        self._store = store
        self._clock = clock
        self._parts = parts
        self._trimmed_at = -TRIM_EVERY

    async def step(self) -> bool:
        """Returns whether this center leads."""
        if not self._settings.enabled:
            return False
        self._parts.sample_own()
        now = self._clock.now()
        monitoring = self._store.monitoring
        lease = await monitoring.lease(LEASE, self._holder, now, now + LEASE_SECONDS)
        if lease is not None:
            await self._parts.sample_all()
        await self._parts.collector.flush()
        if lease is None:
            return False
        try:
            await self._lead(lease)
        except LostLease:
            log.info("another center leads monitoring now")
            return False
        return True

    async def stop(self) -> None:
        """Write the last figures, if the store answers soon."""
        if not self._settings.enabled:
            return
        with contextlib.suppress(TimeoutError, SkepError):
            async with asyncio.timeout(STOP_SECONDS):
                await self._parts.collector.flush()

    async def _lead(self, lease: MonitorLease) -> None:
        store, now = self._store.monitoring, self._clock.now()
        coarser = [resolution.step for resolution in RESOLUTIONS if resolution is not FINE]
        await _while_full(lambda: store.series.roll_up(lease, coarser, ROLLED), ROLLED)
        await _while_full(lambda: self._follow(lease), FOLLOWED)
        rules = in_force(await store.rules.all())
        silent = next(named.rule for named in rules if named.name == KIND)
        await self._parts.judge.step(lease, silent, now)
        await self._parts.alerting.step(lease, rules, now)
        await self._parts.notices.step(lease, now)
        if self._clock.monotonic() - self._trimmed_at >= TRIM_EVERY:
            await self._trim(lease, now)
            self._trimmed_at = self._clock.monotonic()

    async def _follow(self, lease: MonitorLease) -> int:
        groups = self._store.monitoring.groups
        count, returned = await groups.follow(lease, self._clock.now(), FOLLOWED)
        for one in returned:
            log.warning("failure group %s is back: %s", one.group, one.text)
        return count

    async def _trim(self, lease: MonitorLease, now: float) -> None:
        store, settings = self._store.monitoring, self._settings
        ages = [(one.step, bucket(now - one.kept, one.step)) for one in RESOLUTIONS]
        await _while_full(lambda: store.series.trim(lease, ages, settings.rows, DELETED), DELETED)
        oldest = now - GROUPS_KEPT
        keep = settings.failure_groups
        await _while_full(lambda: store.groups.trim(lease, keep, oldest, DELETED), DELETED)
        await store.summaries.forget(lease, now - HISTORY_KEPT, DELETED)
        await store.alerts.expire(lease, now - settings.events_end, now - settings.alerts_kept)


async def _while_full(call: Callable[[], Awaitable[int]], limit: int) -> None:
    """Repeat a call that does at most `limit` things while there is more."""
    for _ in range(ROUNDS):
        if await call() < limit:
            return
