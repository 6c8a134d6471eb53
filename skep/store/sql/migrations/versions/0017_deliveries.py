"""Delivery of items into sinks: positions with leases, and items that a sink refused.

Idempotent like every script here: each step asks whether it is done already.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0017"
down_revision = "0016"

BIG_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
LONG_TEXT = sa.Text().with_variant(
    mysql.MEDIUMTEXT(charset="utf8mb4", collation="utf8mb4_bin"), "mysql", "mariadb"
)


def _name(length: int) -> sa.String:
    exact = mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin")
    return sa.String(length).with_variant(exact, "mysql", "mariadb")


def upgrade() -> None:
    op.create_table(
        "deliveries",
        sa.Column("run", _name(64), primary_key=True),
        sa.Column("sink", _name(32), primary_key=True),
        sa.Column("job", _name(64), nullable=False),
        sa.Column("place", LONG_TEXT, nullable=False),
        sa.Column("state", _name(16), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("delivered", sa.BigInteger(), nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("error", LONG_TEXT, nullable=False),
        sa.Column("error_at", sa.Float(53), nullable=False),
        sa.Column("again_at", sa.Float(53), nullable=False),
        sa.Column("changed_at", sa.Float(53), nullable=False),
        sa.Column("holder", _name(64), nullable=False),
        sa.Column("held_until", sa.Float(53), nullable=False),
        sa.Column("lease", sa.Integer(), nullable=False),
        sa.Column("resends", sa.Integer(), nullable=False),
        if_not_exists=True,
    )
    due = ["state", "again_at"]
    op.create_index("deliveries_open", "deliveries", due, if_not_exists=True)
    op.create_table(
        "rejected_items",
        sa.Column("no", BIG_ID, primary_key=True),
        sa.Column("run", _name(64), nullable=False),
        sa.Column("sink", _name(32), nullable=False),
        sa.Column("item", sa.BigInteger(), nullable=False),
        sa.Column("reason", LONG_TEXT, nullable=False),
        sa.Column("at", sa.Float(53), nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("ticket", sa.Integer(), nullable=False),
        sa.UniqueConstraint("run", "sink", "item", name="rejected_items_once"),
        if_not_exists=True,
    )


def downgrade() -> None:
    """A downgrade would lose positions."""
    raise NotImplementedError("restore a backup instead")
