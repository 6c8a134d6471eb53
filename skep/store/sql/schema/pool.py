"""Tables of the message pool. Run by centers only.

Migrations create the tables; add a new column in both places.
"""

from __future__ import annotations

import sqlalchemy as sa

from skep.store.sql.schema.columns import BigId, Bytes, Exact, LongText, Seconds, metadata, name_of

# A message that failed, must wait, or is dead.
pool = sa.Table(
    "pool",
    metadata,
    sa.Column("id", BigId, primary_key=True, autoincrement=True),
    sa.Column("pipeline", Exact, nullable=False),
    sa.Column("origin", name_of(200), nullable=False),
    sa.Column("input", Exact, nullable=False),
    sa.Column("body", Bytes, nullable=False),
    sa.Column("state", name_of(16), nullable=False),
    sa.Column("due", Seconds, nullable=False),
    sa.Column("expires", Seconds, nullable=False),
    sa.Column("errors", sa.Integer, nullable=False),
    sa.Column("tries", sa.Integer, nullable=False),
    sa.Column("done", LongText, nullable=False),
    sa.Column("stage", name_of(32), nullable=False),
    sa.Column("reason", LongText, nullable=False),
    sa.Column("put_at", Seconds, nullable=False),
    sa.Column("holder", Exact, nullable=False),
    sa.Column("held_until", Seconds, nullable=False),
    sa.Column("token", sa.Integer, nullable=False),
    sa.UniqueConstraint("pipeline", "origin", name="pool_once"),
    sa.Index("pool_by_due", "pipeline", "state", "due"),
    sa.Index("pool_by_expiry", "state", "expires"),
    sa.Index("pool_by_holder", "holder"),
    sqlite_autoincrement=True,
)

# What has left the pool, and what was ever put: the rest of its ledger.
pool_counts = sa.Table(
    "pool_counts",
    metadata,
    sa.Column("pipeline", Exact, primary_key=True),
    sa.Column("what", name_of(16), primary_key=True),
    sa.Column("n", sa.BigInteger, nullable=False),
)
