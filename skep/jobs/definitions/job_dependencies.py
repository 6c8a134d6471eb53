"""Checks jobs that run after other jobs: no cycles, no unknown jobs. Pure.

Run by centers when a job is stored. The jobs of a cycle would start each other without end.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from skep.model.jobs.schedule import Schedule, ScheduleProblem


def ring(job: str, after: Sequence[str], others: Mapping[str, Sequence[str]]) -> list[str]:
    """The path from `job` back to itself if it ran after these; [] when there is no cycle."""
    waits = {**others, job: after}
    seen: set[str] = set()
    ways = [[job, upstream] for upstream in reversed(after)]
    while ways:
        way = ways.pop()
        if way[-1] == job:
            return way
        if way[-1] not in seen:
            seen.add(way[-1])
            ways += [[*way, upstream] for upstream in reversed(waits.get(way[-1], ()))]
    return []


def chain_problems(
    job: str,
    schedule: Schedule,
    others: Mapping[str, Sequence[str]],
    known: Collection[str] | None = None,
    path: str = "schedule",
) -> list[ScheduleProblem]:
    """`others`: the upstream jobs of every other job; `known`: the jobs that exist."""
    problems = [
        ScheduleProblem(f"{path}.after[{number}]", f"there is no job {name}")
        for number, name in enumerate(schedule.after)
        if known is not None and name != job and name not in known
    ]
    way = ring(job, schedule.after, others)
    if way:
        problems.append(ScheduleProblem(f"{path}.after", f"a cycle: {' after '.join(way)}"))
    return problems
