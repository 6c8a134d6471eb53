"""Generators of runs, and URIs that jobs took recently.

Idempotent like every script here: each step asks whether it is done already.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0010"
down_revision = "0009"

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
DIGEST = sa.LargeBinary(16).with_variant(mysql.BINARY(16), "mysql", "mariadb")
LONG_TEXT = sa.Text().with_variant(
    mysql.MEDIUMTEXT(charset="utf8mb4", collation="utf8mb4_bin"), "mysql", "mariadb"
)


def _name(length: int) -> sa.String:
    exact = mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin")
    return sa.String(length).with_variant(exact, "mysql", "mariadb")


def upgrade() -> None:
    op.create_table(
        "generations",
        sa.Column("run", _name(64), primary_key=True),
        sa.Column("n", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("name", _name(100), nullable=False),
        sa.Column("kind", _name(16), nullable=False),
        sa.Column("state", _name(16), nullable=False),
        sa.Column("starts", sa.Integer(), nullable=False),
        sa.Column("yielded", sa.BigInteger(), nullable=False),
        sa.Column("taken", sa.BigInteger(), nullable=False),
        sa.Column("recent", sa.BigInteger(), nullable=False),
        sa.Column("bad", sa.BigInteger(), nullable=False),
        sa.Column("seconds", sa.Float(53), nullable=False),
        sa.Column("detail", LONG_TEXT, nullable=False),
        if_not_exists=True,
    )
    op.create_table(
        "taken_uris",
        sa.Column("job", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("fingerprint", DIGEST, primary_key=True),
        sa.Column("until", sa.Float(53), nullable=False),
        sa.Column("run", BIG, nullable=False),
        if_not_exists=True,
    )
    op.create_index("taken_uris_until", "taken_uris", ["until"], if_not_exists=True)


def downgrade() -> None:
    """A downgrade would lose which URIs were taken."""
    raise NotImplementedError("restore a backup instead")
