"""Schedules, jobs that follow other jobs, and the ledger of fires.

Idempotent like every script here: each step asks whether it is done already.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0005"
down_revision = "0004"

LONG = sa.Text().with_variant(
    mysql.MEDIUMTEXT(charset="utf8mb4", collation="utf8mb4_bin"), "mysql", "mariadb"
)
ON_THEIR_WAY = sa.text("state IN ('due', 'claimed', 'queued')")


def _name(length: int) -> sa.String:
    exact = mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin")
    return sa.String(length).with_variant(exact, "mysql", "mariadb")


def upgrade() -> None:
    op.create_table(
        "schedules",
        sa.Column("job", _name(64), primary_key=True),
        sa.Column("document", LONG, nullable=False),
        sa.Column("decided", sa.BigInteger(), nullable=False),
        sa.Column("next_at", sa.Float(53), nullable=True),
        sa.Column("version", sa.Integer(), nullable=False),
        if_not_exists=True,
    )
    op.create_index("schedules_next", "schedules", ["next_at"], if_not_exists=True)
    op.create_table(
        "followers",
        sa.Column("upstream", _name(64), primary_key=True),
        sa.Column("job", _name(64), primary_key=True),
        if_not_exists=True,
    )
    op.create_index("followers_by_job", "followers", ["job"], if_not_exists=True)
    op.create_table(
        "fires",
        sa.Column("job", _name(64), primary_key=True),
        sa.Column("fire_key", _name(200), primary_key=True),
        sa.Column("due_at", sa.BigInteger(), nullable=False),
        sa.Column("state", _name(16), nullable=False),
        sa.Column("reason", _name(500), nullable=False),
        sa.Column("run", _name(64), nullable=False),
        sa.Column("center", _name(64), nullable=False),
        sa.Column("token", sa.Integer(), nullable=False),
        sa.Column("claimed_at", sa.Float(53), nullable=False),
        sa.Column("ended_at", sa.Float(53), nullable=False),
        if_not_exists=True,
    )
    op.create_index("fires_of_job", "fires", ["job", "due_at"], if_not_exists=True)
    op.create_index("fires_by_time", "fires", ["due_at"], if_not_exists=True)
    op.create_index(
        "fires_open",
        "fires",
        ["state", "job"],
        sqlite_where=ON_THEIR_WAY,
        postgresql_where=ON_THEIR_WAY,
        if_not_exists=True,
    )


def downgrade() -> None:
    """A downgrade would lose the ledger of fires."""
    raise NotImplementedError("restore a backup instead")
