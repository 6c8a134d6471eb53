"""How long and how often a run waits for the answer of an agent. Pure.

Run by centers only, inside the transactions of leases, reports and reaping.
"""

from __future__ import annotations

from skep.store.sql.runs.runs import HeldRun


def answer_by(run: HeldRun, now: float) -> float | None:
    """Deadline for the next answer of an agent that leases a block or has just answered."""
    rules = run.rules
    if not rules.answer_seconds:
        return None
    return now + rules.answer_seconds + rules.time_limit + rules.host_delay


def lose_limit(run: HeldRun, lease_limit: int) -> int:
    """Number of losses after which requests of the run are dead."""
    retries = run.rules.answer_retries
    return lease_limit if retries is None else min(lease_limit, retries + 1)
