"""Files that bulk operations make, in pieces, and notes about operations.

Idempotent like every script here: each step asks whether it is done already.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0026"
down_revision = "0025"

BIG_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
BYTES = sa.LargeBinary().with_variant(mysql.LONGBLOB(), "mysql", "mariadb")


def upgrade() -> None:
    there = {column["name"] for column in sa.inspect(op.get_bind()).get_columns("operations")}
    if "notes" not in there:
        op.add_column("operations", sa.Column("notes", BYTES, nullable=True))
    op.create_table(
        "operation_files",
        sa.Column("operation", BIG_ID, primary_key=True, autoincrement=False),
        sa.Column("no", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("lines", sa.Integer(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("data", BYTES, nullable=False),
        if_not_exists=True,
    )


def downgrade() -> None:
    """A downgrade would lose files."""
    raise NotImplementedError("restore a backup instead")
