"""Loopback and private places that a user named for a run.

Idempotent like every script here: each step asks whether it is done already.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from skep.store.sql.schema.runs import runs

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    there = {column["name"] for column in sa.inspect(op.get_bind()).get_columns("runs")}
    if "named" not in there:
        op.add_column("runs", sa.Column("named", runs.c.named.type, nullable=True))


def downgrade() -> None:
    """Nothing would be lost, but earlier versions ignore the column."""
    raise NotImplementedError("restore a backup instead")
