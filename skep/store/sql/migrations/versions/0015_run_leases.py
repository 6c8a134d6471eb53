"""The fencing token of the center that supervises a run of a job.

Idempotent like every script here: each step asks whether it is done already.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    there = {column["name"] for column in sa.inspect(op.get_bind()).get_columns("job_runs")}
    if "lease" not in there:
        lease = sa.Column("lease", sa.Integer, nullable=False, server_default="0")
        op.add_column("job_runs", lease)


def downgrade() -> None:
    """Nothing would be lost, but earlier versions ignore the column."""
    raise NotImplementedError("restore a backup instead")
