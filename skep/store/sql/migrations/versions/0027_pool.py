"""The message pool of pipelines, and the counts of its ledger.

Idempotent like every script here: each step asks whether it is done already.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0027"
down_revision = "0026"

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
        "pool",
        sa.Column("id", BIG_ID, primary_key=True, autoincrement=True),
        sa.Column("pipeline", _name(64), nullable=False),
        sa.Column("origin", _name(200), nullable=False),
        sa.Column("input", _name(64), nullable=False),
        sa.Column("body", BYTES, nullable=False),
        sa.Column("state", _name(16), nullable=False),
        sa.Column("due", sa.Float(53), nullable=False),
        sa.Column("expires", sa.Float(53), nullable=False),
        sa.Column("errors", sa.Integer(), nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("done", LONG_TEXT, nullable=False),
        sa.Column("stage", _name(32), nullable=False),
        sa.Column("reason", LONG_TEXT, nullable=False),
        sa.Column("put_at", sa.Float(53), nullable=False),
        sa.Column("holder", _name(64), nullable=False),
        sa.Column("held_until", sa.Float(53), nullable=False),
        sa.Column("token", sa.Integer(), nullable=False),
        sa.UniqueConstraint("pipeline", "origin", name="pool_once"),
        if_not_exists=True,
        sqlite_autoincrement=True,
    )
    indexes = {
        "pool_by_due": ["pipeline", "state", "due"],
        "pool_by_expiry": ["state", "expires"],
        "pool_by_holder": ["holder"],
    }
    for name, columns in indexes.items():
        op.create_index(name, "pool", columns, if_not_exists=True)
    op.create_table(
        "pool_counts",
        sa.Column("pipeline", _name(64), primary_key=True),
        sa.Column("what", _name(16), primary_key=True),
        sa.Column("n", sa.BigInteger(), nullable=False),
        if_not_exists=True,
    )


def downgrade() -> None:
    """A downgrade would lose messages."""
    raise NotImplementedError("restore a backup instead")
