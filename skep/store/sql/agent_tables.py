"""The tables of orders to agents and of center keys, beside `agents` in `tables.py`.

Run by centers only. Migrations make the tables; a column that is added here is added there too.
"""

from __future__ import annotations

import sqlalchemy as sa

from skep.store.sql.tables import Bytes, Exact, LongText, Seconds, metadata, name_of

# What an agent was told to do, until it has done it.
agent_orders = sa.Table(
    "agent_orders",
    metadata,
    sa.Column("agent", Exact, primary_key=True),
    sa.Column("no", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("name", name_of(16), nullable=False),
    sa.Column("made_at", Seconds, nullable=False),
    sa.Column("ended_at", Seconds, nullable=True),
    sa.Column("outcome", LongText, nullable=False),
)

# Secrets that all centers of this store share.
center_keys = sa.Table(
    "center_keys",
    metadata,
    sa.Column("name", name_of(32), primary_key=True),
    sa.Column("value", Bytes, nullable=False),
)
