"""Checks the fencing token of the center that supervises a run. Run by centers only.

A center that was frozen or disconnected does not know that another one took its runs. Every write
that it makes for a run carries its lease, and is refused in the same transaction.
"""

from __future__ import annotations

import sqlalchemy as sa

from skep.errors import LostLease
from skep.model.jobs.job import RunLease
from skep.store.sql.engine.database import Tx
from skep.store.sql.schema.jobs import job_runs


def check_lease(tx: Tx, lease: RunLease | None) -> None:
    """Raises LostLease. No other center can take the row before the transaction ends."""
    if lease is None:
        return
    held = sa.select(job_runs.c.run).where(holds(lease)).with_for_update(read=True)
    if tx.execute(held).first() is None:
        raise LostLease(f"run {lease.run} is no longer held by center {lease.holder}")


def holds(lease: RunLease) -> sa.ColumnElement[bool]:
    """True for the row of the run while this lease is the newest and the run is open."""
    return sa.and_(
        job_runs.c.run == lease.run,
        job_runs.c.holder == lease.holder,
        job_runs.c.lease == lease.number,
        job_runs.c.open == 1,
    )
