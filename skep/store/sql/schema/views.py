"""The table of saved views. Run by centers only; migrations create the table."""

from __future__ import annotations

import sqlalchemy as sa

from skep.store.sql.schema.columns import LongText, Seconds, metadata, name_of

# A filter of a list under a name: of one owner, or shared with everyone.
views = sa.Table(
    "views",
    metadata,
    sa.Column("owner", name_of(100), primary_key=True),
    sa.Column("name", name_of(64), primary_key=True),
    sa.Column("resource", name_of(16), nullable=False),
    sa.Column("filter", LongText, nullable=False),
    sa.Column("shared", sa.SmallInteger, nullable=False),
    sa.Column("changed_at", Seconds, nullable=False),
    sa.Index("views_shared", "shared", "name"),
)
