"""The tables of generators. Run by centers only.

Migrations create the tables; add a new column in both places.
"""

from __future__ import annotations

import sqlalchemy as sa

from skep.store.sql.schema.columns import BigId, Digest, Exact, LongText, Seconds, metadata, name_of

generations = sa.Table(
    "generations",
    metadata,
    sa.Column("run", Exact, primary_key=True),
    sa.Column("n", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("name", name_of(100), nullable=False),
    sa.Column("kind", name_of(16), nullable=False),
    sa.Column("state", name_of(16), nullable=False),
    sa.Column("starts", sa.Integer, nullable=False),
    sa.Column("yielded", sa.BigInteger, nullable=False),
    sa.Column("taken", sa.BigInteger, nullable=False),
    sa.Column("recent", sa.BigInteger, nullable=False),
    sa.Column("bad", sa.BigInteger, nullable=False),
    sa.Column("seconds", Seconds, nullable=False),
    sa.Column("detail", LongText, nullable=False),
)

# The run of a job that took a URI, and until when no other run does. `job` is a digest.
taken_uris = sa.Table(
    "taken_uris",
    metadata,
    sa.Column("job", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("fingerprint", Digest, primary_key=True),
    sa.Column("until", Seconds, nullable=False),
    sa.Column("run", BigId, nullable=False),
    sa.Index("taken_uris_until", "until"),
)
