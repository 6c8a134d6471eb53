"""The tables of jobs. Run by centers only.

Migrations create the tables; add a new column in both places.
"""

from __future__ import annotations

import sqlalchemy as sa

from skep.store.sql.schema.columns import (
    Bytes,
    Exact,
    LongText,
    Seconds,
    is_collated,
    metadata,
    name_of,
)

jobs = sa.Table(
    "jobs",
    metadata,
    sa.Column("name", Exact, primary_key=True),
    sa.Column("revision", sa.Integer, nullable=False),
    sa.Column("definition", Bytes, nullable=False),
    sa.Column("enabled", sa.SmallInteger, nullable=False),
    sa.Column("deleted", sa.SmallInteger, nullable=False),
    sa.Column("author", name_of(200), nullable=False),
    sa.Column("created_at", Seconds, nullable=False),
    sa.Column("changed_at", Seconds, nullable=False),
    sa.Index("jobs_in_state", "deleted", "enabled", "name"),
)

# For lists, on the engine whose other indexes are in the order of a language.
_NAME = sa.collate(jobs.c.name, "C")
sa.Index("jobs_by_name", _NAME).ddl_if(callable_=is_collated)
sa.Index("jobs_by_state", jobs.c.deleted, jobs.c.enabled, _NAME).ddl_if(callable_=is_collated)

# Of the newest revision; its document has them too.
job_labels = sa.Table(
    "job_labels",
    metadata,
    sa.Column("name", name_of(63), primary_key=True),
    sa.Column("value", name_of(100), primary_key=True),
    sa.Column("job", Exact, primary_key=True),
    sa.Index("job_labels_of_job", "job"),
)

job_revisions = sa.Table(
    "job_revisions",
    metadata,
    sa.Column("job", Exact, primary_key=True),
    sa.Column("revision", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("definition", Bytes, nullable=False),
    sa.Column("what", name_of(16), nullable=False),
    sa.Column("author", name_of(200), nullable=False),
    sa.Column("at", Seconds, nullable=False),
)

# A run of a job, and its supervisor: a holder whose lease has expired has lost it.
job_runs = sa.Table(
    "job_runs",
    metadata,
    sa.Column("run", Exact, primary_key=True),
    sa.Column("job", Exact, nullable=False),
    sa.Column("fire_key", name_of(200), nullable=False),
    sa.Column("revision", sa.Integer, nullable=False),
    sa.Column("at", Seconds, nullable=False),
    sa.Column("open", sa.SmallInteger, nullable=False),
    sa.Column("fed", sa.SmallInteger, nullable=False),
    sa.Column("holder", Exact, nullable=False),
    sa.Column("held_until", Seconds, nullable=False),
    sa.Column("starts", sa.Integer, nullable=False),
    sa.Column("outcome", LongText, nullable=False),
    sa.Column("log", LongText, nullable=False),
    sa.Column("lease", sa.Integer, nullable=False, server_default="0"),
    sa.Column("arguments", name_of(4000), nullable=False, server_default=""),
    # Labels of this run alone, as JSON.
    sa.Column("labels", name_of(4000), nullable=False, server_default=""),
    sa.UniqueConstraint("job", "fire_key", name="job_runs_once"),
    sa.Index("job_runs_of_job", "job", "at"),
    sa.Index("job_runs_open", "open", "held_until"),
)
