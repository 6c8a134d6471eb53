"""Reads the values that alert rules watch: one value per subject. Run by the leading center.

Every reading is bounded: rows of series, and queries with an index and a limit.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from skep.fleet.roster import Roster
from skep.model.lane import Lane
from skep.model.monitoring.alerts import AlertRule, Measure
from skep.model.monitoring.buckets import FINE, MIDDLE, bucket, merge
from skep.model.monitoring.series import (
    BY_NAME,
    DISK,
    DONE,
    FAILED,
    LANES_FILL,
    LEASED,
    Cells,
    SeriesRow,
)
from skep.monitoring.charts import mean_of
from skep.runtime.clock import Clock
from skep.store.ports import Store

#: Rows of series and subjects that one reading covers.
ROWS = 5000
SUBJECTS = 500
#: Minimum number of answers in the window for a failure rate.
ANSWERS = 20
#: Seconds after which an agent that is gone counts as removed.
REMOVED = 7 * 86_400.0


class Reading(NamedTuple):
    """The value of a subject, and what a person should read."""

    value: float
    detail: str


Readings = dict[str, Reading]


class Measures:
    """Reads the measures of one evaluation; rows of series are read once per resolution."""

    def __init__(self, store: Store, roster: Roster, clock: Clock) -> None:
        self._store = store
        self._roster = roster
        self._clock = clock
        self._rows: dict[int, list[SeriesRow]] = {}
        self._read: Mapping[Measure, Callable[[AlertRule], Awaitable[Readings]]] = {
            "failure_rate": self._failure_rate,
            "silent_job": self._silent_job,
            "stale_run": self._stale_run,
            "dead_agent": self._dead_agent,
            "disk_free": self._disk_free,
            "lane_stuck": self._lane_stuck,
            "series": self._series,
        }

    def forget(self) -> None:
        """A new evaluation begins."""
        self._rows.clear()

    async def read(self, rule: AlertRule) -> Readings | None:
        """By subject; None for a measure whose alerts come from elsewhere."""
        read = self._read.get(rule.measure)
        if read is None:
            return None
        found = await read(rule)
        return {key: one for key, one in found.items() if key.startswith(rule.subject)}

    async def _recent(self, window: float) -> list[SeriesRow]:
        """Rows of the window, of all scopes. A long window is read in minutes."""
        resolution = FINE if window <= FINE.kept / 4 else MIDDLE
        since = bucket(self._clock.now() - window, resolution.step)
        if resolution.step not in self._rows:
            span = max(window, 900.0 if resolution is FINE else window)
            start = bucket(self._clock.now() - span, resolution.step)
            series = self._store.monitoring.series
            self._rows[resolution.step] = await series.recent(resolution.step, start, ROWS)
        return [row for row in self._rows[resolution.step] if row.at >= since]

    async def _sum(self, window: float, run: str = "") -> Cells:
        total: Cells = {}
        for row in await self._recent(window):
            if row.run == run:
                merge(total, row.cells)
        return total

    async def _failure_rate(self, rule: AlertRule) -> Readings:
        of_runs: dict[str, Cells] = {}
        for row in await self._recent(rule.window):
            if row.run:
                merge(of_runs.setdefault(row.run, {}), row.cells)
        found: Readings = {}
        for run, cells in of_runs.items():
            failed, done = _total(cells, FAILED), _total(cells, DONE)
            if failed + done >= ANSWERS:
                rate = failed / (failed + done)
                found[run] = Reading(rate, f"{rate:.0%} of {failed + done:.0f} attempts failed")
        return found

    async def _silent_job(self, rule: AlertRule) -> Readings:
        """Schedules that no center processes; with a subject, a job without finished runs."""
        now = self._clock.now()
        if rule.subject:
            return await self._without_runs(rule.subject, now)
        late = await self._store.monitoring.watches.late_jobs(now, SUBJECTS)
        return {
            one.job: Reading(now - one.due_at, f"its schedule is {now - one.due_at:.0f} s late")
            for one in late
        }

    async def _without_runs(self, job: str, now: float) -> Readings:
        last = await self._store.monitoring.summaries.history(job, now + 1, 1)
        if not last:
            return {}
        age = now - last[0].ended_at
        return {job: Reading(age, f"no run has finished for {age:.0f} s")}

    async def _stale_run(self, _: AlertRule) -> Readings:
        now = self._clock.now()
        return {
            one.run: Reading(1.0, f"{one.open} requests are ready, and none was answered lately")
            for one in await self._store.monitoring.watches.stale_runs(now, SUBJECTS)
        }

    async def _dead_agent(self, _: AlertRule) -> Readings:
        if not self._roster.may_judge:
            return {}
        now = self._clock.now()
        silent = [
            (view.id, now - view.seen_at)
            for view in self._roster.views
            if view.enabled and not self._roster.alive(view.id)
        ]
        return {
            agent: Reading(age, f"no heartbeat for {age:.0f} s")
            for agent, age in silent
            if age < REMOVED
        }

    async def _disk_free(self, _: AlertRule) -> Readings:
        newest: Cells = {}
        for row in sorted(await self._recent(60.0), key=lambda row: row.at):
            if not row.run and DISK in row.cells:
                newest.setdefault(DISK, {}).update(row.cells[DISK])
        return {
            center: Reading(n / k, f"{n / k / 2**30:.1f} GiB are free")
            for center, (n, k) in newest.get(DISK, {}).items()
            if k
        }

    async def _lane_stuck(self, rule: AlertRule) -> Readings:
        """A full lane is normal while agents take blocks from it."""
        cells = await self._sum(rule.window)
        idle = _total(cells, LEASED) == 0
        found: Readings = {}
        for lane in Lane:
            n, k = cells.get(LANES_FILL, {}).get(lane.label, (0.0, 0))
            fill = n / k if k and idle else 0.0
            found[lane.label] = Reading(fill, "it is full, and no agent takes blocks from it")
        return found

    async def _series(self, rule: AlertRule) -> Readings:
        info = BY_NAME.get(rule.series)
        if info is None:
            return {}
        value = mean_of(info, await self._sum(rule.window), rule.label, rule.window)
        if value is None:
            return {}
        subject = f"{rule.series} {rule.label}".strip()
        return {subject: Reading(value, f"{value:.4g} {info.unit} over {rule.window:g} s")}


def _total(cells: Cells, name: str) -> float:
    return sum(n for n, _ in cells.get(name, {}).values())
