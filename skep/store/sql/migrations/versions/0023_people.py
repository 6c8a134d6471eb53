"""Users, groups, sessions, login links and the audit log; scope and last use of tokens.

Idempotent like every script here: each step asks whether it is done already.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0023"
down_revision = "0022"

BIG_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
BYTES = sa.LargeBinary().with_variant(mysql.LONGBLOB(), "mysql", "mariadb")
DIGEST = sa.LargeBinary(32).with_variant(mysql.BINARY(32), "mysql", "mariadb")
LONG_TEXT = sa.Text().with_variant(
    mysql.MEDIUMTEXT(charset="utf8mb4", collation="utf8mb4_bin"), "mysql", "mariadb"
)


def _name(length: int) -> sa.String:
    exact = mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin")
    return sa.String(length).with_variant(exact, "mysql", "mariadb")


def upgrade() -> None:
    _users()
    _sessions()
    _audit_log()
    there = {column["name"] for column in sa.inspect(op.get_bind()).get_columns("tokens")}
    if "scope" not in there:
        op.add_column("tokens", sa.Column("scope", BYTES, nullable=True))
    if "last_used_at" not in there:
        op.add_column("tokens", sa.Column("last_used_at", sa.Float(53), nullable=True))


def _users() -> None:
    op.create_table(
        "users",
        sa.Column("name", _name(64), primary_key=True),
        sa.Column("role", _name(16), nullable=False),
        sa.Column("password", _name(400), nullable=False),
        sa.Column("disabled", sa.SmallInteger(), nullable=False),
        sa.Column("member_of", BYTES, nullable=False),
        sa.Column("created_at", sa.Float(53), nullable=False),
        sa.Column("changed_at", sa.Float(53), nullable=False),
        sa.Column("login_at", sa.Float(53), nullable=True),
        if_not_exists=True,
    )
    op.create_table(
        "user_groups",
        sa.Column("name", _name(64), primary_key=True),
        sa.Column("labels", BYTES, nullable=False),
        sa.Column("created_at", sa.Float(53), nullable=False),
        if_not_exists=True,
    )


def _sessions() -> None:
    op.create_table(
        "user_sessions",
        sa.Column("digest", DIGEST, primary_key=True),
        sa.Column("user_name", _name(64), nullable=False),
        sa.Column("created_at", sa.Float(53), nullable=False),
        sa.Column("seen_at", sa.Float(53), nullable=False),
        sa.Column("expires_at", sa.Float(53), nullable=False),
        sa.Column("address", _name(64), nullable=False),
        sa.Column("client", _name(200), nullable=False),
        sa.Column("method", _name(16), nullable=False),
        if_not_exists=True,
    )
    by = ["user_name", "created_at"]
    op.create_index("user_sessions_by_user", "user_sessions", by, if_not_exists=True)
    op.create_table(
        "login_links",
        sa.Column("digest", DIGEST, primary_key=True),
        sa.Column("user_name", _name(64), nullable=False),
        sa.Column("created_at", sa.Float(53), nullable=False),
        sa.Column("expires_at", sa.Float(53), nullable=False),
        sa.Column("used_at", sa.Float(53), nullable=True),
        if_not_exists=True,
    )
    op.create_index("login_links_by_user", "login_links", ["user_name"], if_not_exists=True)


def _audit_log() -> None:
    op.create_table(
        "audit",
        sa.Column("id", BIG_ID, primary_key=True, autoincrement=True),
        sa.Column("at", sa.Float(53), nullable=False),
        sa.Column("who", _name(100), nullable=False),
        sa.Column("action", _name(64), nullable=False),
        sa.Column("object", _name(200), nullable=False),
        sa.Column("outcome", _name(16), nullable=False),
        sa.Column("detail", LONG_TEXT, nullable=False),
        sa.Column("address", _name(64), nullable=False),
        sa.Column("client", _name(16), nullable=False),
        sa.Column("credential", _name(32), nullable=False),
        sa.Column("state_before", LONG_TEXT, nullable=False),
        sa.Column("state_after", LONG_TEXT, nullable=False),
        sa.Column("times", sa.BigInteger(), nullable=False),
        sa.Column("center", _name(64), nullable=False),
        sa.Column("size", sa.Integer(), nullable=False),
        if_not_exists=True,
    )
    for name, columns in (
        ("audit_by_who", ["who", "id"]),
        ("audit_by_object", ["object", "id"]),
        ("audit_by_time", ["at"]),
    ):
        op.create_index(name, "audit", columns, if_not_exists=True)


def downgrade() -> None:
    """A downgrade would lose users and the audit log."""
    raise NotImplementedError("restore a backup instead")
