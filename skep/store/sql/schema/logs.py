"""The tables of log pieces. Run by centers only; migrations create the tables.

The counter gives out the ids of pieces. Its row stays locked until the commit, so ids grow in the
order of commits on every engine: a reader that has seen one never finds a smaller one later.
"""

from __future__ import annotations

import sqlalchemy as sa

from skep.store.sql.schema.columns import BigId, Bytes, Digest, Exact, Seconds, metadata, name_of

log_counter = sa.Table(
    "log_counter",
    metadata,
    sa.Column("no", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("last", sa.BigInteger, nullable=False),
)

# How far the lines of a source are stored. The key is a digest of its four names.
log_sources = sa.Table(
    "log_sources",
    metadata,
    sa.Column("source", Digest, primary_key=True),
    sa.Column("token", sa.BigInteger, nullable=False),
    sa.Column("next", sa.BigInteger, nullable=False),
    # Time of the last line, and when the row was written.
    sa.Column("time", Seconds, nullable=False),
    sa.Column("at", Seconds, nullable=False),
    sa.Index("log_sources_at", "at"),
)

log_pieces = sa.Table(
    "log_pieces",
    metadata,
    sa.Column("id", BigId, primary_key=True, autoincrement=False),
    sa.Column("source", Digest, nullable=False),
    sa.Column("kind", name_of(16), nullable=False),
    sa.Column("name", name_of(255), nullable=False),
    sa.Column("run", Exact, nullable=False),
    sa.Column("agent", Exact, nullable=False),
    sa.Column("token", sa.BigInteger, nullable=False),
    sa.Column("first", sa.BigInteger, nullable=False),
    sa.Column("last", sa.BigInteger, nullable=False),
    sa.Column("count", sa.BigInteger, nullable=False),
    sa.Column("size", sa.BigInteger, nullable=False),
    sa.Column("stored", sa.BigInteger, nullable=False),
    sa.Column("levels", sa.Integer, nullable=False),
    sa.Column("earliest", Seconds, nullable=False),
    sa.Column("latest", Seconds, nullable=False),
    sa.Column("tier", sa.Integer, nullable=False),
    sa.Column("first_arrived", sa.BigInteger, nullable=False),
    sa.Column("last_arrived", sa.BigInteger, nullable=False),
    sa.Column("at", Seconds, nullable=False),
    # The id of the piece that took its place, and when.
    sa.Column("replaced", sa.BigInteger, nullable=True),
    sa.Column("replaced_at", Seconds, nullable=True),
    sa.Column("summary", Bytes, nullable=False),
    sa.Index("log_pieces_time", "latest", "id"),
    sa.Index("log_pieces_run", "run", "latest", "id"),
    sa.Index("log_pieces_agent", "agent", "latest", "id"),
    sa.Index("log_pieces_source", "source", "token", "first"),
    sa.Index("log_pieces_tier", "tier"),
    sa.Index("log_pieces_arrived", "last_arrived"),
    sa.Index("log_pieces_replaced", "replaced_at"),
)

# Apart from the facts, so that a search reads rows without bodies.
log_bodies = sa.Table(
    "log_bodies",
    metadata,
    sa.Column("id", BigId, primary_key=True, autoincrement=False),
    sa.Column("body", Bytes, nullable=False),
)

# Pieces and bytes per agent; the agent is empty for lines of centers.
log_sums = sa.Table(
    "log_sums",
    metadata,
    sa.Column("agent", Exact, primary_key=True),
    sa.Column("name", name_of(16), primary_key=True),
    sa.Column("n", sa.BigInteger, nullable=False),
)
