"""Tables of bulk operations. Run by centers only.

Migrations create the tables; add a new column in both places.
"""

from __future__ import annotations

import sqlalchemy as sa

from skep.store.sql.schema.columns import BigId, Bytes, Exact, LongText, Seconds, metadata, name_of

# One act on everything that a filter matched, and the center that works it off.
operations = sa.Table(
    "operations",
    metadata,
    sa.Column("no", BigId, primary_key=True, autoincrement=True),
    sa.Column("once", name_of(64), nullable=True, unique=True),
    sa.Column("resource", name_of(32), nullable=False),
    sa.Column("act", name_of(32), nullable=False),
    sa.Column("filter", LongText, nullable=False),
    sa.Column("arguments", Bytes, nullable=False),
    sa.Column("creator", name_of(300), nullable=False),
    sa.Column("moment", Seconds, nullable=False),
    sa.Column("rate", sa.Integer, nullable=False),
    sa.Column("confirmed", sa.BigInteger, nullable=True),
    sa.Column("state", name_of(16), nullable=False),
    sa.Column("matched", sa.BigInteger, nullable=False),
    sa.Column("settled", sa.BigInteger, nullable=False),
    sa.Column("results", Bytes, nullable=False),
    sa.Column("error", LongText, nullable=False),
    sa.Column("position", LongText, nullable=False),
    sa.Column("bound", LongText, nullable=False),
    sa.Column("created_at", Seconds, nullable=False),
    sa.Column("started_at", Seconds, nullable=False),
    sa.Column("ended_at", Seconds, nullable=False),
    sa.Column("holder", Exact, nullable=False),
    sa.Column("held_until", Seconds, nullable=False),
    sa.Column("lease", sa.Integer, nullable=False),
    sa.Column("notes", Bytes, nullable=True),
    sa.Index("operations_by_state", "state", "no"),
    sqlite_autoincrement=True,
)

# The set of an operation in parts; a part that is processed is deleted.
operation_parts = sa.Table(
    "operation_parts",
    metadata,
    sa.Column("operation", BigId, primary_key=True, autoincrement=False),
    sa.Column("no", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("size", sa.Integer, nullable=False),
    sa.Column("objects", Bytes, nullable=False),
)

# The file that an operation makes, one piece for each part that is worked off.
operation_files = sa.Table(
    "operation_files",
    metadata,
    sa.Column("operation", BigId, primary_key=True, autoincrement=False),
    sa.Column("no", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("lines", sa.Integer, nullable=False),
    sa.Column("bytes", sa.BigInteger, nullable=False),
    sa.Column("data", Bytes, nullable=False),
)
