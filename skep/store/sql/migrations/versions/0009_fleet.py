"""Sessions and commands of agents; names, expiry and uses of tokens.

Idempotent like every script here: each step asks whether it is done already.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0009"
down_revision = "0008"

LONG_TEXT = sa.Text().with_variant(
    mysql.MEDIUMTEXT(charset="utf8mb4", collation="utf8mb4_bin"), "mysql", "mariadb"
)
BYTES = sa.LargeBinary().with_variant(mysql.LONGBLOB(), "mysql", "mariadb")


def _name(length: int) -> sa.String:
    exact = mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin")
    return sa.String(length).with_variant(exact, "mysql", "mariadb")


def _add(table: str, *columns: sa.Column[object]) -> None:
    there = {column["name"] for column in sa.inspect(op.get_bind()).get_columns(table)}
    for column in columns:
        if column.name not in there:
            op.add_column(table, column)


def upgrade() -> None:
    _add("agents", sa.Column("session", sa.BigInteger(), nullable=True))
    _add("agents", sa.Column("mark", _name(64), nullable=True))
    _add("agents", sa.Column("labels", BYTES, nullable=True))
    _add("agents", sa.Column("aside", _name(16), nullable=True))
    _add("agents", sa.Column("pending", sa.SmallInteger(), nullable=True))
    _add("agents", sa.Column("bound", sa.SmallInteger(), nullable=True))
    _add("tokens", sa.Column("note", _name(200), nullable=True))
    _add("tokens", sa.Column("expires_at", sa.Float(53), nullable=True))
    _add("tokens", sa.Column("grant_", BYTES, nullable=True))
    _add("tokens", sa.Column("used_by", _name(64), nullable=True))
    _add("tokens", sa.Column("used_at", sa.Float(53), nullable=True))
    op.create_table(
        "agent_orders",
        sa.Column("agent", _name(64), primary_key=True),
        sa.Column("no", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("name", _name(16), nullable=False),
        sa.Column("made_at", sa.Float(53), nullable=False),
        sa.Column("ended_at", sa.Float(53), nullable=True),
        sa.Column("outcome", LONG_TEXT, nullable=False),
        if_not_exists=True,
    )


def downgrade() -> None:
    """A downgrade would make revoked and used tokens valid again."""
    raise NotImplementedError("restore a backup instead")
