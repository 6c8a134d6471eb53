"""Tables of figures over time, alert rules, failure groups and run summaries. Centers only."""

from __future__ import annotations

import sqlalchemy as sa

from skep.store.sql.schema.columns import Bytes, Exact, LongText, Seconds, metadata, name_of

# One row holds all series of one scope in one interval. Rows of 10 seconds are written once, by
# the flush that is named as `writer`; rolled-up rows have no writer.
series = sa.Table(
    "series",
    metadata,
    sa.Column("step", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("run", Exact, primary_key=True),
    sa.Column("at", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("writer", Exact, primary_key=True),
    sa.Column("cells", Bytes, nullable=False),
    # 1: it is part of the coarser rows.
    sa.Column("rolled", sa.SmallInteger, nullable=False),
    sa.Index("series_age", "step", "at"),
    sa.Index("series_new", "rolled", "at"),
)

alert_rules = sa.Table(
    "alert_rules",
    metadata,
    sa.Column("name", name_of(32), primary_key=True),
    sa.Column("body", Bytes, nullable=False),
    sa.Column("changed_at", Seconds, nullable=False),
)

# Counted with every request that dies; `gone` counts those that are not dead any more.
failure_groups = sa.Table(
    "failure_groups",
    metadata,
    sa.Column("fault", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("host", name_of(255), primary_key=True),
    sa.Column("died", sa.BigInteger, nullable=False),
    sa.Column("gone", sa.BigInteger, nullable=False),
    sa.Column("first_at", Seconds, nullable=False),
    sa.Column("last_at", Seconds, nullable=False),
    # 1: requests died since the history was written.
    sa.Column("fresh", sa.SmallInteger, nullable=False),
    # Part of `died` that is in the history.
    sa.Column("counted", sa.BigInteger, nullable=False, server_default="0"),
    sa.Column("state", name_of(16), nullable=False, server_default="open"),
    sa.Column("note", name_of(500), nullable=False, server_default=""),
    sa.Column("changed_at", Seconds, nullable=False, server_default="0"),
    sa.Column("changed_by", name_of(100), nullable=False, server_default=""),
    sa.Column("reopened", sa.Integer, nullable=False, server_default="0"),
    sa.Column("history", Bytes, nullable=True),
    sa.Index("failure_groups_last", "last_at"),
    sa.Index("failure_groups_fresh", "fresh"),
    sa.Index("failure_groups_state", "state", "last_at"),
)

# A row is written with the end of its run; the summary follows.
run_summaries = sa.Table(
    "run_summaries",
    metadata,
    sa.Column("run", Exact, primary_key=True),
    sa.Column("job", name_of(200), nullable=False),
    sa.Column("state", name_of(16), nullable=False),
    sa.Column("ended_at", Seconds, nullable=False),
    sa.Column("judged", sa.SmallInteger, nullable=False),
    sa.Column("body", Bytes, nullable=True),
    sa.Column("finding", LongText, nullable=False),
    sa.Index("run_summaries_of_job", "job", "ended_at"),
    sa.Index("run_summaries_new", "judged", "ended_at"),
)

# Which center does the work that only one should do.
monitor_leases = sa.Table(
    "monitor_leases",
    metadata,
    sa.Column("name", name_of(32), primary_key=True),
    sa.Column("holder", Exact, nullable=False),
    sa.Column("token", sa.BigInteger, nullable=False),
    sa.Column("held_until", Seconds, nullable=False),
)
