"""Application jobs: their instances, logs and packages.

Idempotent like every script here: each step asks whether it is done already.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0013"
down_revision = "0012"

BYTES = sa.LargeBinary().with_variant(mysql.LONGBLOB(), "mysql", "mariadb")
LONG_TEXT = sa.Text().with_variant(
    mysql.MEDIUMTEXT(charset="utf8mb4", collation="utf8mb4_bin"), "mysql", "mariadb"
)


def _name(length: int) -> sa.String:
    exact = mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin")
    return sa.String(length).with_variant(exact, "mysql", "mariadb")


def upgrade() -> None:
    op.create_table(
        "app_runs",
        sa.Column("run", _name(64), primary_key=True),
        sa.Column("spec", BYTES, nullable=False),
        sa.Column("secrets", BYTES, nullable=False),
        sa.Column("package", _name(64), nullable=False),
        sa.Column("at", sa.Float(53), nullable=False),
        if_not_exists=True,
    )
    op.create_index("app_runs_package", "app_runs", ["package"], if_not_exists=True)
    op.create_table(
        "app_instances",
        sa.Column("run", _name(64), primary_key=True),
        sa.Column("no", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("state", _name(16), nullable=False),
        sa.Column("agent", _name(64), nullable=False),
        sa.Column("token", sa.Integer(), nullable=False),
        sa.Column("round", sa.Integer(), nullable=False),
        sa.Column("halted", sa.SmallInteger(), nullable=False),
        sa.Column("starts", sa.BigInteger(), nullable=False),
        sa.Column("begun", sa.BigInteger(), nullable=False),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("reason", LONG_TEXT, nullable=False),
        sa.Column("placed_at", sa.Float(53), nullable=False),
        sa.Column("changed_at", sa.Float(53), nullable=False),
        sa.Column("log_next", sa.BigInteger(), nullable=False),
        sa.Column("log_end", sa.BigInteger(), nullable=False),
        sa.Column("log_start", sa.BigInteger(), nullable=False),
        sa.Column("log_lost", sa.BigInteger(), nullable=False),
        if_not_exists=True,
    )
    of_agent = ["agent", "state"]
    op.create_index("app_instances_of_agent", "app_instances", of_agent, if_not_exists=True)
    _bytes()


def _bytes() -> None:
    op.create_table(
        "app_logs",
        sa.Column("run", _name(64), primary_key=True),
        sa.Column("no", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("start", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.Column("data", BYTES, nullable=False),
        if_not_exists=True,
    )
    op.create_table(
        "packages",
        sa.Column("digest", _name(64), primary_key=True),
        sa.Column("kind", _name(16), nullable=False),
        sa.Column("name", _name(255), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("complete", sa.SmallInteger(), nullable=False),
        sa.Column("used_at", sa.Float(53), nullable=False),
        if_not_exists=True,
    )
    op.create_index("packages_used", "packages", ["used_at"], if_not_exists=True)
    op.create_table(
        "package_chunks",
        sa.Column("digest", _name(64), primary_key=True),
        sa.Column("n", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("data", BYTES, nullable=False),
        if_not_exists=True,
    )


def downgrade() -> None:
    """A downgrade would lose which instance runs on which agent."""
    raise NotImplementedError("restore a backup instead")
