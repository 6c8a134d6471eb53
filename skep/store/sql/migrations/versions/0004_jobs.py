"""Jobs, their revisions, and the runs that they started.

Idempotent like every script here: each step asks whether it is done already.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0004"
down_revision = "0003"

BYTES = sa.LargeBinary().with_variant(mysql.LONGBLOB(), "mysql", "mariadb")
LONG = sa.Text().with_variant(
    mysql.MEDIUMTEXT(charset="utf8mb4", collation="utf8mb4_bin"), "mysql", "mariadb"
)


def _name(length: int) -> sa.String:
    exact = mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin")
    return sa.String(length).with_variant(exact, "mysql", "mariadb")


def upgrade() -> None:
    op.create_table(
        "jobs",
        sa.Column("name", _name(64), primary_key=True),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("definition", BYTES, nullable=False),
        sa.Column("enabled", sa.SmallInteger(), nullable=False),
        sa.Column("deleted", sa.SmallInteger(), nullable=False),
        sa.Column("author", _name(200), nullable=False),
        sa.Column("created_at", sa.Float(53), nullable=False),
        sa.Column("changed_at", sa.Float(53), nullable=False),
        if_not_exists=True,
    )
    op.create_table(
        "job_revisions",
        sa.Column("job", _name(64), primary_key=True),
        sa.Column("revision", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("definition", BYTES, nullable=False),
        sa.Column("what", _name(16), nullable=False),
        sa.Column("author", _name(200), nullable=False),
        sa.Column("at", sa.Float(53), nullable=False),
        if_not_exists=True,
    )
    op.create_table(
        "job_runs",
        sa.Column("run", _name(64), primary_key=True),
        sa.Column("job", _name(64), nullable=False),
        sa.Column("fire_key", _name(200), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("at", sa.Float(53), nullable=False),
        sa.Column("open", sa.SmallInteger(), nullable=False),
        sa.Column("fed", sa.SmallInteger(), nullable=False),
        sa.Column("holder", _name(64), nullable=False),
        sa.Column("held_until", sa.Float(53), nullable=False),
        sa.Column("starts", sa.Integer(), nullable=False),
        sa.Column("outcome", LONG, nullable=False),
        sa.Column("log", LONG, nullable=False),
        sa.UniqueConstraint("job", "fire_key", name="job_runs_once"),
        if_not_exists=True,
    )
    op.create_index("job_runs_of_job", "job_runs", ["job", "at"], if_not_exists=True)
    op.create_index("job_runs_open", "job_runs", ["open", "held_until"], if_not_exists=True)


def downgrade() -> None:
    """A downgrade would lose jobs."""
    raise NotImplementedError("restore a backup instead")
