"""Log lines of all processes in compressed pieces, with their sums and how far each source is.

Idempotent like every script here: each step asks whether it is done already.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0022"
down_revision = "0021"

BIG_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
DIGEST = sa.LargeBinary(16).with_variant(mysql.BINARY(16), "mysql", "mariadb")
BYTES = sa.LargeBinary().with_variant(mysql.LONGBLOB(), "mysql", "mariadb")
INDEXES = (
    ("log_sources_at", "log_sources", ["at"]),
    ("log_pieces_time", "log_pieces", ["latest", "id"]),
    ("log_pieces_run", "log_pieces", ["run", "latest", "id"]),
    ("log_pieces_agent", "log_pieces", ["agent", "latest", "id"]),
    ("log_pieces_source", "log_pieces", ["source", "token", "first"]),
    ("log_pieces_tier", "log_pieces", ["tier"]),
    ("log_pieces_arrived", "log_pieces", ["last_arrived"]),
    ("log_pieces_replaced", "log_pieces", ["replaced_at"]),
)


def _name(length: int) -> sa.String:
    exact = mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin")
    return sa.String(length).with_variant(exact, "mysql", "mariadb")


def upgrade() -> None:
    _create_progress()
    _create_pieces()
    for name, table, columns in INDEXES:
        op.create_index(name, table, columns, if_not_exists=True)


def _create_progress() -> None:
    op.create_table(
        "log_counter",
        sa.Column("no", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("last", sa.BigInteger(), nullable=False),
        if_not_exists=True,
    )
    op.create_table(
        "log_sources",
        sa.Column("source", DIGEST, primary_key=True),
        sa.Column("token", sa.BigInteger(), nullable=False),
        sa.Column("next", sa.BigInteger(), nullable=False),
        sa.Column("time", sa.Float(53), nullable=False),
        sa.Column("at", sa.Float(53), nullable=False),
        if_not_exists=True,
    )
    op.create_table(
        "log_sums",
        sa.Column("agent", _name(64), primary_key=True),
        sa.Column("name", _name(16), primary_key=True),
        sa.Column("n", sa.BigInteger(), nullable=False),
        if_not_exists=True,
    )


def _create_pieces() -> None:
    op.create_table(
        "log_pieces",
        sa.Column("id", BIG_ID, primary_key=True, autoincrement=False),
        sa.Column("source", DIGEST, nullable=False),
        sa.Column("kind", _name(16), nullable=False),
        sa.Column("name", _name(255), nullable=False),
        sa.Column("run", _name(64), nullable=False),
        sa.Column("agent", _name(64), nullable=False),
        sa.Column("token", sa.BigInteger(), nullable=False),
        sa.Column("first", sa.BigInteger(), nullable=False),
        sa.Column("last", sa.BigInteger(), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("stored", sa.BigInteger(), nullable=False),
        sa.Column("levels", sa.Integer(), nullable=False),
        sa.Column("earliest", sa.Float(53), nullable=False),
        sa.Column("latest", sa.Float(53), nullable=False),
        sa.Column("tier", sa.Integer(), nullable=False),
        sa.Column("first_arrived", sa.BigInteger(), nullable=False),
        sa.Column("last_arrived", sa.BigInteger(), nullable=False),
        sa.Column("at", sa.Float(53), nullable=False),
        sa.Column("replaced", sa.BigInteger(), nullable=True),
        sa.Column("replaced_at", sa.Float(53), nullable=True),
        sa.Column("summary", BYTES, nullable=False),
        if_not_exists=True,
    )
    op.create_table(
        "log_bodies",
        sa.Column("id", BIG_ID, primary_key=True, autoincrement=False),
        sa.Column("body", BYTES, nullable=False),
        if_not_exists=True,
    )


def downgrade() -> None:
    """A downgrade would lose the logs."""
    raise NotImplementedError("restore a backup instead")
