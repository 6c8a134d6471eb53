"""Arguments of one run of a job, which override those of its document.

Idempotent like every script here: each step asks whether it is done already.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from skep.store.sql.schema.columns import name_of

revision = "0020"
down_revision = "0019"


def upgrade() -> None:
    there = {column["name"] for column in sa.inspect(op.get_bind()).get_columns("job_runs")}
    if "arguments" not in there:
        column = sa.Column("arguments", name_of(4000), nullable=False, server_default="")
        op.add_column("job_runs", column)


def downgrade() -> None:
    """Nothing would be lost, but earlier versions ignore the column."""
    raise NotImplementedError("restore a backup instead")
