"""Tables of runs: their drivers, items and figures. Run by centers only."""

from __future__ import annotations

import sqlalchemy as sa

from skep.store.sql.schema.columns import BigId, Bytes, Exact, LongText, Seconds, metadata, name_of

runs = sa.Table(
    "runs",
    metadata,
    sa.Column("no", BigId, primary_key=True, autoincrement=True),
    sa.Column("id", Exact, nullable=False, unique=True),
    sa.Column("job", name_of(200), nullable=False),
    sa.Column("state", name_of(16), nullable=False),
    sa.Column("settings", Bytes, nullable=False),
    sa.Column("created_at", Seconds, nullable=False),
    sa.Column("reason", LongText, nullable=True),
    sa.Column("changed_at", Seconds, nullable=True),
    # Places that a user named, as msgpack; empty for most runs.
    sa.Column("named", Bytes, nullable=True),
    # Its labels as msgpack; `run_labels` has them for searches.
    sa.Column("labels", Bytes, nullable=True),
    sa.Index("runs_ended", "state", "changed_at"),
    # For lists, newest first.
    sa.Index("runs_created", "created_at", "no"),
    sa.Index("runs_of_job", "job", "created_at", "no"),
    sa.Index("runs_in_state", "state", "created_at", "no"),
    sqlite_autoincrement=True,
)


run_labels = sa.Table(
    "run_labels",
    metadata,
    sa.Column("name", name_of(63), primary_key=True),
    sa.Column("value", name_of(100), primary_key=True),
    sa.Column("run", BigId, primary_key=True, autoincrement=False),
    sa.Index("run_labels_of_run", "run"),
)


drivers = sa.Table(
    "drivers",
    metadata,
    sa.Column("run", BigId, primary_key=True, autoincrement=False),
    sa.Column("token", sa.Integer, nullable=False),
    # Time of the driver's last call, and its timeout; NULL = not set.
    sa.Column("heard_at", Seconds, nullable=True),
    sa.Column("patience", Seconds, nullable=True),
    # A command for the driver's process; NULL = none.
    sa.Column("asked", name_of(16), nullable=True),
)


items = sa.Table(
    "items",
    metadata,
    sa.Column("id", BigId, primary_key=True, autoincrement=True),
    sa.Column("run", BigId, nullable=False),
    sa.Column("request", BigId, nullable=False),
    sa.Column("n", sa.Integer, nullable=False),
    sa.Column("data", Bytes, nullable=False),
    sa.Column("at", Seconds, nullable=False),
    sa.UniqueConstraint("request", "n", name="items_once"),
    sa.Index("items_of_run", "run", "id"),
    sqlite_autoincrement=True,
)


# Counted with every report: answers by status, failures by kind, bytes, agents, and answers in
# the last minute. One row per run and name, so that a large run costs no more than a small one.
figures = sa.Table(
    "figures",
    metadata,
    sa.Column("run", BigId, primary_key=True, autoincrement=False),
    sa.Column("name", name_of(80), primary_key=True),
    sa.Column("n", sa.BigInteger, nullable=False),
)
