"""When an agent changed in anything but heartbeats, so that centers read only changes.

Idempotent like every script here: each step asks whether it is done already.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    there = {column["name"] for column in sa.inspect(op.get_bind()).get_columns("agents")}
    if "changed_at" not in there:
        op.add_column("agents", sa.Column("changed_at", sa.Float(53), nullable=True))


def downgrade() -> None:
    """Nothing would be lost, but earlier versions ignore the column."""
    raise NotImplementedError("restore a backup instead")
