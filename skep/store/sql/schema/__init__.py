"""The tables, one file per domain; `migrations` creates them. Run by centers only.

The unit of the queue is the block row: narrow, with its body in a separate table, so that a
change of state does not rewrite the body. A request row is written when it is accepted, when it
is packed and when it ends. Times are seconds since the epoch; states are the numbers of
`model/states.py`.
"""

from __future__ import annotations

from skep.store.sql.schema import (
    agents,
    allocations,
    apps,
    blocks,
    deliveries,
    dispatch_log,
    ended_work,
    generators,
    hosts,
    jobs,
    logs,
    monitoring,
    operations,
    people,
    pool,
    records,
    requests,
    runs,
    schedules,
    secrets,
    views,
)
from skep.store.sql.schema.columns import metadata

__all__ = ["DOMAINS", "metadata"]

#: All of them are imported here, so that `metadata` has the tables of all.
DOMAINS = (
    *(agents, allocations, apps, blocks, deliveries, dispatch_log, ended_work, generators),
    *(hosts, jobs, logs, monitoring, operations, people, pool, records, requests, runs),
    *(schedules, secrets, views),
)
