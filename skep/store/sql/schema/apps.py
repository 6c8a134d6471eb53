"""The tables of application jobs. Run by centers only.

An instance's log is one stream of bytes over all its placements, stored in pieces that start at
`start`; its row stores the end of the stream and the oldest byte that is kept.
"""

from __future__ import annotations

import sqlalchemy as sa

from skep.store.sql.schema.columns import Bytes, Exact, LongText, Seconds, metadata, name_of

app_runs = sa.Table(
    "app_runs",
    metadata,
    sa.Column("run", Exact, primary_key=True),
    sa.Column("spec", Bytes, nullable=False),
    # Names of secrets, never their contents.
    sa.Column("secrets", Bytes, nullable=False),
    sa.Column("package", Exact, nullable=False),
    sa.Column("at", Seconds, nullable=False),
    sa.Index("app_runs_package", "package"),
)

app_instances = sa.Table(
    "app_instances",
    metadata,
    sa.Column("run", Exact, primary_key=True),
    sa.Column("no", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("state", name_of(16), nullable=False),
    sa.Column("agent", Exact, nullable=False),
    sa.Column("token", sa.Integer, nullable=False),
    sa.Column("round", sa.Integer, nullable=False),
    sa.Column("halted", sa.SmallInteger, nullable=False),
    # Starts over all placements, and those of earlier placements.
    sa.Column("starts", sa.BigInteger, nullable=False),
    sa.Column("begun", sa.BigInteger, nullable=False),
    sa.Column("exit_code", sa.Integer, nullable=True),
    sa.Column("reason", LongText, nullable=False),
    sa.Column("placed_at", Seconds, nullable=False),
    sa.Column("changed_at", Seconds, nullable=False),
    # The agent's next offset under this token; the end of the stream; the oldest byte that is
    # kept; bytes that an agent had to drop.
    sa.Column("log_next", sa.BigInteger, nullable=False),
    sa.Column("log_end", sa.BigInteger, nullable=False),
    sa.Column("log_start", sa.BigInteger, nullable=False),
    sa.Column("log_lost", sa.BigInteger, nullable=False),
    sa.Index("app_instances_of_agent", "agent", "state"),
)

app_logs = sa.Table(
    "app_logs",
    metadata,
    sa.Column("run", Exact, primary_key=True),
    sa.Column("no", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("start", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("size", sa.Integer, nullable=False),
    sa.Column("data", Bytes, nullable=False),
)

packages = sa.Table(
    "packages",
    metadata,
    sa.Column("digest", Exact, primary_key=True),
    sa.Column("kind", name_of(16), nullable=False),
    sa.Column("name", name_of(255), nullable=False),
    sa.Column("size", sa.BigInteger, nullable=False),
    sa.Column("complete", sa.SmallInteger, nullable=False),
    sa.Column("used_at", Seconds, nullable=False),
    sa.Index("packages_used", "used_at"),
)

package_chunks = sa.Table(
    "package_chunks",
    metadata,
    sa.Column("digest", Exact, primary_key=True),
    sa.Column("n", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("data", Bytes, nullable=False),
)
