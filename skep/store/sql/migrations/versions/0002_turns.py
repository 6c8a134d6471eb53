"""Drivers of runs, the items that they found, and when the first request of a block expires.

Idempotent like every script here: each step asks whether it is done already.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0002"
down_revision = "0001"

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
BYTES = sa.LargeBinary().with_variant(mysql.LONGBLOB(), "mysql", "mariadb")


def upgrade() -> None:
    columns = {column["name"] for column in sa.inspect(op.get_bind()).get_columns("blocks")}
    if "expires_at" not in columns:
        op.add_column("blocks", sa.Column("expires_at", sa.Float(53), nullable=True))
    op.create_table(
        "drivers",
        sa.Column("run", BIG, primary_key=True, autoincrement=False),
        sa.Column("token", sa.Integer(), nullable=False),
        if_not_exists=True,
    )
    op.create_table(
        "items",
        sa.Column("id", BIG, primary_key=True, autoincrement=True),
        sa.Column("run", BIG, nullable=False),
        sa.Column("request", BIG, nullable=False),
        sa.Column("n", sa.Integer(), nullable=False),
        sa.Column("data", BYTES, nullable=False),
        sa.Column("at", sa.Float(53), nullable=False),
        sa.UniqueConstraint("request", "n", name="items_once"),
        sqlite_autoincrement=True,
        if_not_exists=True,
    )
    op.create_index("items_of_run", "items", ["run", "id"], if_not_exists=True)


def downgrade() -> None:
    """A downgrade would lose items."""
    raise NotImplementedError("restore a backup instead")
