"""Tables of the scheduler: plans, jobs that follow other jobs, and the ledger of fires.

Separate, because no rows of other domains refer to them.
"""

from __future__ import annotations

import sqlalchemy as sa

from skep.store.sql.schema.columns import Exact, LongText, Seconds, metadata, name_of, partial_index

#: One row per job with a schedule, so that a center reads few rows to find due ones.
schedules = sa.Table(
    "schedules",
    metadata,
    sa.Column("job", Exact, primary_key=True),
    sa.Column("document", LongText, nullable=False),
    sa.Column("decided", sa.BigInteger, nullable=False),
    sa.Column("next_at", Seconds, nullable=True),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Index("schedules_next", "next_at"),
)

#: `job` runs when a run of `upstream` has succeeded.
followers = sa.Table(
    "followers",
    metadata,
    sa.Column("upstream", Exact, primary_key=True),
    sa.Column("job", Exact, primary_key=True),
    sa.Index("followers_by_job", "job"),
)

#: The primary key allows several centers to fire without a leader.
fires = sa.Table(
    "fires",
    metadata,
    sa.Column("job", Exact, primary_key=True),
    sa.Column("fire_key", name_of(200), primary_key=True),
    sa.Column("due_at", sa.BigInteger, nullable=False),
    sa.Column("state", name_of(16), nullable=False),
    sa.Column("reason", name_of(500), nullable=False),
    sa.Column("run", Exact, nullable=False),
    sa.Column("center", Exact, nullable=False),
    sa.Column("token", sa.Integer, nullable=False),
    sa.Column("claimed_at", Seconds, nullable=False),
    sa.Column("ended_at", Seconds, nullable=False),
    sa.Index("fires_of_job", "job", "due_at"),
    sa.Index("fires_by_time", "due_at"),
)

#: Queries must use exactly this text: engines do not match a bound value with the index.
OPEN = sa.text("state IN ('due', 'claimed', 'queued')")
partial_index("fires_open", OPEN, fires.c.state, fires.c.job)
