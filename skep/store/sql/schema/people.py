"""Tables of users, groups, sessions, login links and the audit log. Run by centers only.

Session ids and login links are stored as digests, passwords as hashes.
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

users = sa.Table(
    "users",
    metadata,
    sa.Column("name", Exact, primary_key=True),
    sa.Column("role", name_of(16), nullable=False),
    sa.Column("password", name_of(400), nullable=False),
    sa.Column("disabled", sa.SmallInteger, nullable=False),
    # Names of groups, as msgpack.
    sa.Column("member_of", Bytes, nullable=False),
    sa.Column("created_at", Seconds, nullable=False),
    sa.Column("changed_at", Seconds, nullable=False),
    sa.Column("login_at", Seconds, nullable=True),
)

user_groups = sa.Table(
    "user_groups",
    metadata,
    sa.Column("name", Exact, primary_key=True),
    # Terms of the scope, as msgpack.
    sa.Column("labels", Bytes, nullable=False),
    sa.Column("created_at", Seconds, nullable=False),
)

user_sessions = sa.Table(
    "user_sessions",
    metadata,
    sa.Column("digest", Digest32, primary_key=True),
    sa.Column("user_name", Exact, nullable=False),
    sa.Column("created_at", Seconds, nullable=False),
    sa.Column("seen_at", Seconds, nullable=False),
    sa.Column("expires_at", Seconds, nullable=False),
    sa.Column("address", name_of(64), nullable=False),
    sa.Column("client", name_of(200), nullable=False),
    sa.Column("method", name_of(16), nullable=False),
    sa.Index("user_sessions_by_user", "user_name", "created_at"),
)

login_links = sa.Table(
    "login_links",
    metadata,
    sa.Column("digest", Digest32, primary_key=True),
    sa.Column("user_name", Exact, nullable=False),
    sa.Column("created_at", Seconds, nullable=False),
    sa.Column("expires_at", Seconds, nullable=False),
    sa.Column("used_at", Seconds, nullable=True),
    sa.Index("login_links_by_user", "user_name"),
)

audit_log = sa.Table(
    "audit",
    metadata,
    sa.Column("id", BigId, primary_key=True, autoincrement=True),
    sa.Column("at", Seconds, nullable=False),
    sa.Column("who", name_of(100), nullable=False),
    sa.Column("action", name_of(64), nullable=False),
    sa.Column("object", name_of(200), nullable=False),
    sa.Column("outcome", name_of(16), nullable=False),
    sa.Column("detail", LongText, nullable=False),
    sa.Column("address", name_of(64), nullable=False),
    sa.Column("client", name_of(16), nullable=False),
    sa.Column("credential", name_of(32), nullable=False),
    sa.Column("state_before", LongText, nullable=False),
    sa.Column("state_after", LongText, nullable=False),
    sa.Column("times", sa.BigInteger, nullable=False),
    sa.Column("center", Exact, nullable=False),
    # Estimated bytes of the row.
    sa.Column("size", sa.Integer, nullable=False),
    sa.Index("audit_by_who", "who", "id"),
    sa.Index("audit_by_object", "object", "id"),
    sa.Index("audit_by_time", "at"),
)
