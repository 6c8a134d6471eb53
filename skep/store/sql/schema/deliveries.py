"""Tables of delivery into sinks. Run by centers only.

Migrations create the tables; add a new column in both places.
"""

from __future__ import annotations

import sqlalchemy as sa

from skep.store.sql.schema.columns import BigId, Exact, LongText, Seconds, metadata, name_of

# The position of a sink in the items of a run, and the center that delivers.
deliveries = sa.Table(
    "deliveries",
    metadata,
    sa.Column("run", Exact, primary_key=True),
    sa.Column("sink", name_of(32), primary_key=True),
    sa.Column("job", Exact, nullable=False),
    sa.Column("place", LongText, nullable=False),
    sa.Column("state", name_of(16), nullable=False),
    sa.Column("position", sa.BigInteger, nullable=False),
    sa.Column("delivered", sa.BigInteger, nullable=False),
    sa.Column("tries", sa.Integer, nullable=False),
    sa.Column("error", LongText, nullable=False),
    sa.Column("error_at", Seconds, nullable=False),
    sa.Column("again_at", Seconds, nullable=False),
    sa.Column("changed_at", Seconds, nullable=False),
    sa.Column("holder", Exact, nullable=False),
    sa.Column("held_until", Seconds, nullable=False),
    sa.Column("lease", sa.Integer, nullable=False),
    sa.Column("resends", sa.Integer, nullable=False),
    sa.Index("deliveries_open", "state", "again_at"),
)

# Items that a sink refused. A ticket means that the item is sent again, in that order.
rejected_items = sa.Table(
    "rejected_items",
    metadata,
    sa.Column("no", BigId, primary_key=True),
    sa.Column("run", Exact, nullable=False),
    sa.Column("sink", name_of(32), nullable=False),
    sa.Column("item", sa.BigInteger, nullable=False),
    sa.Column("reason", LongText, nullable=False),
    sa.Column("at", Seconds, nullable=False),
    sa.Column("tries", sa.Integer, nullable=False),
    sa.Column("ticket", sa.Integer, nullable=False),
    sa.UniqueConstraint("run", "sink", "item", name="rejected_items_once"),
)
