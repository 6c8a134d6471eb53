"""Tables of archive segments and alerts. Run by centers only."""

from __future__ import annotations

import sqlalchemy as sa

from skep.store.sql.schema.columns import (
    LongText,
    Seconds,
    metadata,
    name_of,
)

segments = sa.Table(
    "segments",
    metadata,
    sa.Column("name", name_of(128), primary_key=True),
    sa.Column("committed", sa.BigInteger, nullable=False),
    # Marked: no row may refer to it any more. Gone: its file is deleted, too.
    sa.Column("deleted_at", Seconds, nullable=True),
    sa.Column("gone", sa.SmallInteger, nullable=True),
)


alerts = sa.Table(
    "alerts",
    metadata,
    sa.Column("kind", name_of(32), primary_key=True),
    sa.Column("subject", name_of(100), primary_key=True),
    sa.Column("detail", LongText, nullable=False),
    sa.Column("times", sa.Integer, nullable=False),
    sa.Column("first_at", Seconds, nullable=False),
    sa.Column("last_at", Seconds, nullable=False),
)
