"""Tables of allocations: which agents were chosen for which run. Run by centers only.

A run without a placement rule has no row here.
"""

from __future__ import annotations

import sqlalchemy as sa

from skep.store.sql.schema.columns import BigId, Exact, LongText, Seconds, metadata, name_of

# A run with a placement rule; released when it has ended and its agents were informed.
allocations = sa.Table(
    "allocations",
    metadata,
    sa.Column("run", BigId, primary_key=True, autoincrement=False),
    sa.Column("strategy", name_of(16), nullable=False),
    sa.Column("at", Seconds, nullable=False),
    sa.Column("released_at", Seconds, nullable=True),
    sa.Index("allocations_open", "released_at"),
)

# The chosen agents, in their order; `until` is when one was replaced, and why.
allocation_agents = sa.Table(
    "allocation_agents",
    metadata,
    sa.Column("run", BigId, primary_key=True, autoincrement=False),
    sa.Column("agent", Exact, primary_key=True),
    sa.Column("slot", sa.Integer, nullable=False),
    sa.Column("since", Seconds, nullable=False),
    sa.Column("until", Seconds, nullable=True),
    sa.Column("why", LongText, nullable=False),
    sa.Index("allocations_of_agent", "agent"),
)
