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
    # `firing` or `resolved`; acknowledged and muted follow from the times below.
    sa.Column("state", name_of(16), nullable=False, server_default="firing"),
    sa.Column("severity", name_of(16), nullable=False, server_default="warning"),
    sa.Column("by_rule", sa.SmallInteger, nullable=False, server_default="0"),
    sa.Column("changed_at", Seconds, nullable=False, server_default="0"),
    sa.Column("changes", sa.Integer, nullable=False, server_default="1"),
    # 1: the last change of the state has no notices yet.
    sa.Column("untold", sa.SmallInteger, nullable=False, server_default="0"),
    sa.Column("acknowledged_at", Seconds, nullable=False, server_default="0"),
    sa.Column("acknowledged_by", name_of(100), nullable=False, server_default=""),
    sa.Column("muted_until", Seconds, nullable=False, server_default="0"),
    sa.Index("alerts_untold", "untold"),
    sa.Index("alerts_last", "last_at"),
)
