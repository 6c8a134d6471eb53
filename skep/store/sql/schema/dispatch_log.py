"""The table of the dispatch log.

Run by centers only; migrations create the table.
"""

from __future__ import annotations

import sqlalchemy as sa

from skep.store.sql.schema.columns import BigId, Exact, LongText, Seconds, metadata, name_of

# One row: what a center dispatched of one run into one lane within some seconds.
dispatch_log = sa.Table(
    "dispatch_log",
    metadata,
    sa.Column("id", BigId, primary_key=True, autoincrement=True),
    sa.Column("at", Seconds, nullable=False),
    sa.Column("kind", name_of(16), nullable=False),
    sa.Column("run", Exact, nullable=False),
    sa.Column("job", name_of(200), nullable=False),
    sa.Column("lane", name_of(8), nullable=False),
    sa.Column("reason", LongText, nullable=False),
    sa.Column("size", sa.BigInteger, nullable=False),
    sa.Column("blocks", sa.Integer, nullable=False),
    sa.Column("rounds", sa.Integer, nullable=False),
    sa.Column("seconds", sa.Float(53), nullable=False),
    sa.Column("center", Exact, nullable=False),
    sa.Column("host", name_of(255), nullable=False),
    sa.Index("dispatch_log_by_time", "at"),
    sa.Index("dispatch_log_by_run", "run", "id"),
    sqlite_autoincrement=True,
)
