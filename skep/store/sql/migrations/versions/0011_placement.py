"""Allocations of runs with their agents, and which agent a request of a chain belongs to.

Idempotent like every script here: each step asks whether it is done already.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0011"
down_revision = "0010"

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
LONG_TEXT = sa.Text().with_variant(
    mysql.MEDIUMTEXT(charset="utf8mb4", collation="utf8mb4_bin"), "mysql", "mariadb"
)


def _name(length: int) -> sa.String:
    exact = mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin")
    return sa.String(length).with_variant(exact, "mysql", "mariadb")


def _add(table: str, *columns: sa.Column[object]) -> None:
    there = {column["name"] for column in sa.inspect(op.get_bind()).get_columns(table)}
    for column in columns:
        if column.name not in there:
            op.add_column(table, column)


def upgrade() -> None:
    _add(
        "requests",
        sa.Column("place", _name(64), nullable=True),
        sa.Column("root", sa.BigInteger(), nullable=True),
    )
    op.create_table(
        "allocations",
        sa.Column("run", BIG, primary_key=True, autoincrement=False),
        sa.Column("strategy", _name(16), nullable=False),
        sa.Column("at", sa.Float(53), nullable=False),
        sa.Column("released_at", sa.Float(53), nullable=True),
        if_not_exists=True,
    )
    op.create_index("allocations_open", "allocations", ["released_at"], if_not_exists=True)
    op.create_table(
        "allocation_agents",
        sa.Column("run", BIG, primary_key=True, autoincrement=False),
        sa.Column("agent", _name(64), primary_key=True),
        sa.Column("slot", sa.Integer(), nullable=False),
        sa.Column("since", sa.Float(53), nullable=False),
        sa.Column("until", sa.Float(53), nullable=True),
        sa.Column("why", LONG_TEXT, nullable=False),
        if_not_exists=True,
    )
    op.create_index("allocations_of_agent", "allocation_agents", ["agent"], if_not_exists=True)


def downgrade() -> None:
    """A downgrade would lose the allocations."""
    raise NotImplementedError("restore a backup instead")
