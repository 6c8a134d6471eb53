"""Secrets, encrypted with a key that is not in the database.

Idempotent like every script here: each step asks whether it is done already.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0028"
down_revision = "0027"

BYTES = sa.LargeBinary().with_variant(mysql.LONGBLOB(), "mysql", "mariadb")


def _name(length: int) -> sa.String:
    exact = mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin")
    return sa.String(length).with_variant(exact, "mysql", "mariadb")


def upgrade() -> None:
    op.create_table(
        "secrets",
        sa.Column("name", _name(100), primary_key=True),
        sa.Column("purpose", _name(16), nullable=False),
        sa.Column("key_id", _name(32), nullable=False),
        sa.Column("sealed", BYTES, nullable=False),
        sa.Column("changed_at", sa.Float(53), nullable=False),
        sa.Column("changed_by", _name(300), nullable=False),
        if_not_exists=True,
    )


def downgrade() -> None:
    """A downgrade would lose the secrets."""
    raise NotImplementedError("restore a backup instead")
