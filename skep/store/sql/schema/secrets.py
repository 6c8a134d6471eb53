"""The table of encrypted secrets. Run by centers only; migrations create the table."""

from __future__ import annotations

import sqlalchemy as sa

from skep.store.sql.schema.columns import Bytes, Seconds, metadata, name_of

# The key is not in the database: `key_id` only names it.
secrets = sa.Table(
    "secrets",
    metadata,
    sa.Column("name", name_of(100), primary_key=True),
    sa.Column("purpose", name_of(16), nullable=False),
    sa.Column("key_id", name_of(32), nullable=False),
    sa.Column("sealed", Bytes, nullable=False),
    sa.Column("changed_at", Seconds, nullable=False),
    sa.Column("changed_by", name_of(300), nullable=False),
)
