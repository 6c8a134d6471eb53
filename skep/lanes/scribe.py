"""Rows for the dispatch log, from what a round did. Pure but for the names of jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from skep.model.block import BlockRef
from skep.model.dispatch import DispatchKind, DispatchReport, DispatchRow
from skep.model.lane import Lane, lane_of
from skep.store.facts import Backlog, PackPlan


class Scribe:
    """Knows who writes, and which job a run belongs to."""

    def __init__(self, center: str, host: str) -> None:
        self._center = center
        self._host = host
        self._jobs: dict[str, str] = {}

    def learn(self, backlog: Sequence[Backlog]) -> None:
        """The jobs of the runs that the coming rows are about."""
        self._jobs = {entry.run: entry.job for entry in backlog}

    def blocked(
        self, waiting: Sequence[tuple[str, Lane]], limits: Mapping[Lane, int], now: float
    ) -> list[DispatchRow]:
        return [
            self._row("alert", now, run, lane, f"lane {lane.label} is full ({limits[lane]})")
            for run, lane in waiting
        ]

    def packed(self, refs: Sequence[BlockRef], now: float, took: float) -> list[DispatchRow]:
        """One row for each run and lane; the time of the round falls on each alike."""
        sizes: Counter[tuple[str, Lane]] = Counter()
        for ref in refs:
            sizes[ref.run, ref.lane] += ref.size
        blocks = Counter((ref.run, ref.lane) for ref in refs)
        return [
            self._row("success", now, run, lane, "packed", size, blocks[run, lane], took)
            for (run, lane), size in sizes.items()
        ]

    def planned(self, plans: Sequence[PackPlan], now: float) -> list[DispatchRow]:
        """What a dry run says."""
        sizes: Counter[tuple[str, Lane]] = Counter()
        blocks: Counter[tuple[str, Lane]] = Counter()
        for plan in plans:
            key = plan.run, lane_of(plan.priority)
            sizes[key] += plan.limit
            blocks[key] += -(-plan.limit // plan.block_size)
        return [
            self._row("success", now, run, lane, "would be packed", size, blocks[run, lane])
            for (run, lane), size in sizes.items()
        ]

    def failed(
        self, reason: str, now: float, took: float, plan: PackPlan | None = None
    ) -> DispatchRow:
        """Of one run, or of everything."""
        run = "" if plan is None else plan.run
        lane = None if plan is None else lane_of(plan.priority)
        return self._row("failed", now, run, lane, reason, took=took)

    def report(
        self, rows: list[DispatchRow], took: float, parked: int, *, dry_run: bool
    ) -> DispatchReport:
        size = sum(row.size for row in rows)
        return DispatchReport(rows, size, took, self._center, self._host, dry_run, parked)

    def _row(
        self,
        kind: DispatchKind,
        now: float,
        run: str,
        lane: Lane | None,
        reason: str,
        size: int = 0,
        blocks: int = 0,
        took: float = 0.0,
    ) -> DispatchRow:
        return DispatchRow(
            at=now,
            kind=kind,
            run=run,
            job=self._jobs.get(run, ""),
            lane="" if lane is None else lane.label,
            reason=reason,
            size=size,
            blocks=blocks,
            seconds=took,
            center=self._center,
            host=self._host,
        )
