"""Tables of blocks: narrow rows, with the body in a separate table. Run by centers only."""

from __future__ import annotations

import sqlalchemy as sa

from skep.store.sql.schema.columns import (
    BigId,
    Bytes,
    Exact,
    LongText,
    Seconds,
    metadata,
    partial_index,
)

blocks = sa.Table(
    "blocks",
    metadata,
    sa.Column("id", BigId, primary_key=True, autoincrement=True),
    sa.Column("run", BigId, nullable=False),
    sa.Column("priority", sa.SmallInteger, nullable=False),
    sa.Column("state", sa.SmallInteger, nullable=False),
    sa.Column("token", sa.Integer, nullable=False),
    sa.Column("losses", sa.Integer, nullable=False),
    sa.Column("agent", Exact, nullable=False),
    sa.Column("target", Exact, nullable=False),
    sa.Column("lease_until", Seconds, nullable=False),
    sa.Column("size", sa.Integer, nullable=False),
    sa.Column("open", sa.Integer, nullable=False),
    sa.Column("failed", sa.Integer, nullable=False),
    sa.Column("collected", sa.SmallInteger, nullable=False),
    sa.Column("created_at", Seconds, nullable=False),
    sa.Column("expires_at", Seconds, nullable=True),
    # No lease is renewed beyond this time; every answer extends it. NULL = no limit.
    sa.Column("answer_by", Seconds, nullable=True),
    sa.Index("blocks_of_run", "run", "id"),
    sqlite_autoincrement=True,
)

_CLAIMABLE = sa.text("state IN (1, 16)")
_USING = sa.text("state = 2")
_FINISHED = sa.text("state IN (4, 8) AND collected = 0")

partial_index("blocks_claimable", _CLAIMABLE, blocks.c.state, blocks.c.id)
partial_index("blocks_using", _USING, blocks.c.state, blocks.c.lease_until)
partial_index("blocks_finished", _FINISHED, blocks.c.run, blocks.c.collected, blocks.c.id)


block_bodies = sa.Table(
    "block_bodies",
    metadata,
    sa.Column("block", BigId, primary_key=True, autoincrement=False),
    sa.Column("body", Bytes, nullable=False),
)


block_history = sa.Table(
    "block_history",
    metadata,
    sa.Column("id", BigId, primary_key=True, autoincrement=True),
    sa.Column("block", BigId, nullable=False, index=True),
    sa.Column("state", sa.SmallInteger, nullable=False),
    sa.Column("at", Seconds, nullable=False),
    sa.Column("detail", LongText, nullable=False),
)
