"""Tables of agents: heartbeats, tokens, commands, center keys.

Run by centers only. Migrations create the tables; add a new column in both places.
"""

from __future__ import annotations

import sqlalchemy as sa

from skep.store.sql.schema.columns import (
    BigId,
    Bytes,
    Digest32,
    Exact,
    LongText,
    Seconds,
    metadata,
    name_of,
)

# Commands to agents, until they are acknowledged.
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


agents = sa.Table(
    "agents",
    metadata,
    sa.Column("id", Exact, primary_key=True),
    sa.Column("registration", Bytes, nullable=False),
    sa.Column("enabled", sa.SmallInteger, nullable=False),
    sa.Column("registered_at", Seconds, nullable=False),
    sa.Column("seen_at", Seconds, nullable=False),
    sa.Column("vitals", Bytes, nullable=False),
    # Rises with every process that registers; the mark is also stored in its folder.
    sa.Column("session", sa.BigInteger, nullable=True),
    sa.Column("mark", Exact, nullable=True),
    # Set by users: labels, why it gets no work, whether a command is open.
    sa.Column("labels", Bytes, nullable=True),
    sa.Column("aside", name_of(16), nullable=True),
    sa.Column("pending", sa.SmallInteger, nullable=True),
    # It has used its own credential, so the shared one is no longer accepted.
    sa.Column("bound", sa.SmallInteger, nullable=True),
    # Time of the last change other than a heartbeat: centers read changes only.
    sa.Column("changed_at", Seconds, nullable=True),
)


heartbeats = sa.Table(
    "heartbeats",
    metadata,
    sa.Column("id", BigId, primary_key=True, autoincrement=True),
    sa.Column("agent", Exact, nullable=False),
    sa.Column("at", Seconds, nullable=False),
    sa.Column("vitals", Bytes, nullable=False),
    sa.Index("heartbeats_by_agent", "agent", "at"),
    sa.Index("heartbeats_by_time", "at"),
)


tokens = sa.Table(
    "tokens",
    metadata,
    sa.Column("digest", Digest32, primary_key=True),
    sa.Column("role", name_of(16), nullable=False),
    sa.Column("subject", Exact, nullable=False),
    sa.Column("created_at", Seconds, nullable=False),
    sa.Column("revoked", sa.SmallInteger, nullable=False),
    sa.Column("note", name_of(200), nullable=True),
    sa.Column("expires_at", Seconds, nullable=True),
    # What an agent that joins with it gets; and the agent that used it.
    sa.Column("grant_", Bytes, nullable=True),
    sa.Column("used_by", Exact, nullable=True),
    sa.Column("used_at", Seconds, nullable=True),
    # Labels that limit what it may see, as msgpack; and the time of its last use.
    sa.Column("scope", Bytes, nullable=True),
    sa.Column("last_used_at", Seconds, nullable=True),
)
