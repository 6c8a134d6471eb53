"""Bulk operations: their rows with leases, and their sets in parts.

Idempotent like every script here: each step asks whether it is done already.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0024"
down_revision = "0023"

BIG_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
LONG_TEXT = sa.Text().with_variant(
    mysql.MEDIUMTEXT(charset="utf8mb4", collation="utf8mb4_bin"), "mysql", "mariadb"
)
BYTES = sa.LargeBinary().with_variant(mysql.LONGBLOB(), "mysql", "mariadb")


def _name(length: int) -> sa.String:
    exact = mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin")
    return sa.String(length).with_variant(exact, "mysql", "mariadb")


def upgrade() -> None:
    op.create_table(
        "operations",
        sa.Column("no", BIG_ID, primary_key=True, autoincrement=True),
        sa.Column("once", _name(64), nullable=True, unique=True),
        sa.Column("resource", _name(32), nullable=False),
        sa.Column("act", _name(32), nullable=False),
        sa.Column("filter", LONG_TEXT, nullable=False),
        sa.Column("arguments", BYTES, nullable=False),
        sa.Column("creator", _name(300), nullable=False),
        sa.Column("moment", sa.Float(53), nullable=False),
        sa.Column("rate", sa.Integer(), nullable=False),
        sa.Column("confirmed", sa.BigInteger(), nullable=True),
        sa.Column("state", _name(16), nullable=False),
        sa.Column("matched", sa.BigInteger(), nullable=False),
        sa.Column("settled", sa.BigInteger(), nullable=False),
        sa.Column("results", BYTES, nullable=False),
        sa.Column("error", LONG_TEXT, nullable=False),
        sa.Column("position", LONG_TEXT, nullable=False),
        sa.Column("bound", LONG_TEXT, nullable=False),
        sa.Column("created_at", sa.Float(53), nullable=False),
        sa.Column("started_at", sa.Float(53), nullable=False),
        sa.Column("ended_at", sa.Float(53), nullable=False),
        sa.Column("holder", _name(64), nullable=False),
        sa.Column("held_until", sa.Float(53), nullable=False),
        sa.Column("lease", sa.Integer(), nullable=False),
        if_not_exists=True,
        sqlite_autoincrement=True,
    )
    op.create_index("operations_by_state", "operations", ["state", "no"], if_not_exists=True)
    op.create_table(
        "operation_parts",
        sa.Column("operation", BIG_ID, primary_key=True, autoincrement=False),
        sa.Column("no", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.Column("objects", BYTES, nullable=False),
        if_not_exists=True,
    )


def downgrade() -> None:
    """A downgrade would lose open operations."""
    raise NotImplementedError("restore a backup instead")
