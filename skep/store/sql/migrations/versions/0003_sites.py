"""Hosts: their limits, the blocks that hold them, and the requests that wait for them.

Idempotent like every script here: each step asks whether it is done already.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0003"
down_revision = "0002"

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
PARKED = sa.text("state = 3")


def _name(length: int) -> sa.String:
    exact = mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin")
    return sa.String(length).with_variant(exact, "mysql", "mariadb")


def upgrade() -> None:
    op.create_index(
        "requests_parked",
        "requests",
        ["state", "host", "priority", "not_before"],
        sqlite_where=PARKED,
        postgresql_where=PARKED,
        if_not_exists=True,
    )
    op.create_table(
        "sites",
        sa.Column("host", _name(255), primary_key=True),
        sa.Column("rate", sa.Float(53), nullable=True),
        sa.Column("concurrency", sa.Integer(), nullable=True),
        sa.Column("robots", sa.SmallInteger(), nullable=True),
        sa.Column("delay", sa.Float(53), nullable=False),
        sa.Column("crawl_delay", sa.Float(53), nullable=False),
        sa.Column("not_before", sa.Float(53), nullable=False),
        sa.Column("cooling_until", sa.Float(53), nullable=False),
        sa.Column("reason", _name(200), nullable=False),
        sa.Column("strikes", sa.Integer(), nullable=False),
        sa.Column("requests", sa.BigInteger(), nullable=False),
        sa.Column("failed", sa.BigInteger(), nullable=False),
        sa.Column("refused", sa.BigInteger(), nullable=False),
        sa.Column("barred", sa.BigInteger(), nullable=False),
        sa.Column("deferred", sa.BigInteger(), nullable=False),
        sa.Column("received", sa.BigInteger(), nullable=False),
        sa.Column("elapsed_us", sa.BigInteger(), nullable=False),
        sa.Column("last_at", sa.Float(53), nullable=False),
        if_not_exists=True,
    )
    op.create_table(
        "site_holds",
        sa.Column("host", _name(255), primary_key=True),
        sa.Column("block", BIG, nullable=True),
        sa.Column("until", sa.Float(53), nullable=False),
        sa.Column("spacing", sa.Float(53), nullable=False),
        if_not_exists=True,
    )
    op.create_index("ix_site_holds_block", "site_holds", ["block"], if_not_exists=True)
    # From now on `www.example.org` is stored as `example.org`; open requests are changed.
    op.execute(
        "UPDATE requests SET host = SUBSTR(host, 5)"
        " WHERE state IN (0, 1, 3) AND host LIKE 'www.%.%'"
    )


def downgrade() -> None:
    """A downgrade would lose the limits of hosts."""
    raise NotImplementedError("restore a backup instead")
