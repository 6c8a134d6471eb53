"""Tables about ended work: failure fingerprints, segments, deletions, notices.

Run by centers only.
"""

from __future__ import annotations

import sqlalchemy as sa

from skep.store.sql.schema.columns import BigId, Bytes, Exact, LongText, Seconds, metadata, name_of

# A dead request refers to its failure fingerprint; the text is stored once.
faults = sa.Table(
    "faults",
    metadata,
    sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("failure", name_of(16), nullable=False),
    sa.Column("status", sa.Integer, nullable=False),
    sa.Column("text", name_of(300), nullable=False),
)

# Bytes that a run has in an archive segment. A segment without any can be deleted.
segment_runs = sa.Table(
    "segment_runs",
    metadata,
    sa.Column("segment", name_of(128), primary_key=True),
    sa.Column("run", BigId, primary_key=True, autoincrement=False, index=True),
    sa.Column("n", sa.BigInteger, nullable=False),
)

# What was deleted of a run, by kind (bodies, logs, rows), and up to where.
deletions = sa.Table(
    "deletions",
    metadata,
    sa.Column("run", BigId, primary_key=True, autoincrement=False),
    sa.Column("kind", name_of(16), primary_key=True),
    sa.Column("at", Seconds, nullable=False),
    sa.Column("upto", sa.BigInteger, nullable=False),
    sa.Column("n", sa.BigInteger, nullable=False),
    sa.Column("done", sa.SmallInteger, nullable=False),
)

# A run that ended (or failed) and has no notices yet.
endings = sa.Table(
    "endings",
    metadata,
    sa.Column("id", BigId, primary_key=True, autoincrement=True),
    sa.Column("run", Exact, nullable=False),
    sa.Column("state", name_of(16), nullable=False),
    sa.Column("reason", LongText, nullable=False),
    sa.Column("at", Seconds, nullable=False),
    sqlite_autoincrement=True,
)

# The outbox: each row is one message to one recipient, sent until accepted or given up.
notices = sa.Table(
    "notices",
    metadata,
    sa.Column("id", Exact, primary_key=True),
    sa.Column("run", Exact, nullable=False),
    sa.Column("job", name_of(200), nullable=False),
    sa.Column("kind", name_of(16), nullable=False),
    sa.Column("target", LongText, nullable=False),
    sa.Column("secret", name_of(64), nullable=False),
    sa.Column("body", Bytes, nullable=False),
    sa.Column("state", name_of(16), nullable=False),
    sa.Column("tries", sa.Integer, nullable=False),
    sa.Column("due_at", Seconds, nullable=False),
    sa.Column("created_at", Seconds, nullable=False),
    sa.Column("error", LongText, nullable=False),
    sa.Index("notices_due", "state", "due_at"),
)
