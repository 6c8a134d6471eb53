"""Creates rows of the dispatch log from a round. Pure but for the names of jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, zip_longest

from skep.model.block import BlockRef
from skep.model.dispatch import DispatchKind, DispatchReport, DispatchRow
from skep.model.lane import Lane, lane_of
from skep.store.ports.requests import Backlog, PackPlan


class DispatchLogRows:
    """Knows the center that writes, and the job of each run."""

    def __init__(self, center: str, host: str) -> None:
        self._center = center
        self._host = host
        self._jobs: dict[str, str] = {}
        #: By run, the number that one round takes from its job.
        self.numbers: dict[str, int] = {}

    def learn(self, backlog: Sequence[Backlog]) -> None:
        """Learn the jobs of the runs in the next rows."""
        self._jobs = {entry.run: entry.job for entry in backlog}
        self.numbers = {entry.run: entry.dispatch for entry in backlog}

    def blocked(
        self, waiting: Sequence[tuple[str, Lane]], limits: Mapping[Lane, int], now: float
    ) -> list[DispatchRow]:
        return [
            self._row("alert", now, run, lane, f"lane {lane.label} is full ({limits[lane]})")
            for run, lane in waiting
        ]

    def packed(
        self, refs: Sequence[BlockRef], plans: Sequence[PackPlan], now: float, took: float
    ) -> list[DispatchRow]:
        """One row for each round of each run and lane; the time is divided equally."""
        made: dict[tuple[str, Lane], list[int]] = {}
        for ref in refs:
            made.setdefault((ref.run, ref.lane), []).append(ref.size)
        rounds: dict[tuple[str, Lane], list[int]] = {}
        for plan in plans:
            known = rounds.setdefault((plan.run, lane_of(plan.priority)), [])
            known[:] = map(sum, zip_longest(known, plan.rounds or (plan.limit,), fillvalue=0))
        return [
            self._row("success", now, run, lane, "packed", size, count, took if first else 0.0)
            for (run, lane), sizes in made.items()
            for first, size, count in _by_round(sizes, rounds.get((run, lane), ()))
        ]

    def planned(self, plans: Sequence[PackPlan], now: float) -> list[DispatchRow]:
        """The rows of a dry run."""
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
        """The row of a failure, of one run or of the whole dispatch."""
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


def _by_round(sizes: Sequence[int], rounds: Sequence[int]) -> Iterator[tuple[bool, int, int]]:
    """(is it the first, requests, blocks) of each round. A block can contain requests of two
    rounds; it counts for the one in which it begins."""
    begins = [0, *accumulate(sizes)][:-1]
    done, whole = 0, sum(sizes)
    for grant in (*rounds, whole):
        size = min(grant, whole - done)
        if size > 0:
            count = sum(done <= begin < done + size for begin in begins)
            yield done == 0, size, count
        done += size
