"""Failed attempts to fetch robots.txt, by run and host.

Idempotent like every script here: each step asks whether it is done already.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0018"
down_revision = "0017"

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def _name(length: int) -> sa.String:
    exact = mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin")
    return sa.String(length).with_variant(exact, "mysql", "mariadb")


def upgrade() -> None:
    op.create_table(
        "host_probes",
        sa.Column("run", BIG, primary_key=True, autoincrement=False),
        sa.Column("host", _name(255), primary_key=True),
        sa.Column("probes", sa.Integer(), nullable=False),
        sa.Column("at", sa.Float(53), nullable=False),
        sa.Column("failure", _name(16), nullable=False),
        sa.Column("detail", _name(500), nullable=False),
        sa.Column("given_up", sa.SmallInteger(), nullable=False),
        if_not_exists=True,
    )
    op.create_index("host_probes_host", "host_probes", ["host"], if_not_exists=True)


def downgrade() -> None:
    """Nothing would be lost, but earlier versions ignore the table."""
    raise NotImplementedError("restore a backup instead")
