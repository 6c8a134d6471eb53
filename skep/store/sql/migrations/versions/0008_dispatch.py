"""The dispatch log, and an index of waiting requests that failed before.

Idempotent like every script here: each step asks whether it is done already.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0008"
down_revision = "0007"

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
LONG_TEXT = sa.Text().with_variant(
    mysql.MEDIUMTEXT(charset="utf8mb4", collation="utf8mb4_bin"), "mysql", "mariadb"
)
AGAIN = sa.text("state = 0 AND failures > 0")


def _name(length: int) -> sa.String:
    exact = mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin")
    return sa.String(length).with_variant(exact, "mysql", "mariadb")


def upgrade() -> None:
    op.create_table(
        "dispatch_log",
        sa.Column("id", BIG, primary_key=True, autoincrement=True),
        sa.Column("at", sa.Float(53), nullable=False),
        sa.Column("kind", _name(16), nullable=False),
        sa.Column("run", _name(64), nullable=False),
        sa.Column("job", _name(200), nullable=False),
        sa.Column("lane", _name(8), nullable=False),
        sa.Column("reason", LONG_TEXT, nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("blocks", sa.Integer(), nullable=False),
        sa.Column("rounds", sa.Integer(), nullable=False),
        sa.Column("seconds", sa.Float(53), nullable=False),
        sa.Column("center", _name(64), nullable=False),
        sa.Column("host", _name(255), nullable=False),
        sqlite_autoincrement=True,
        if_not_exists=True,
    )
    op.create_index("dispatch_log_by_time", "dispatch_log", ["at"], if_not_exists=True)
    op.create_index("dispatch_log_by_run", "dispatch_log", ["run", "id"], if_not_exists=True)
    if op.get_bind().dialect.name in {"sqlite", "postgresql"}:
        op.create_index(
            "requests_again",
            "requests",
            ["state", "run", "priority", "id"],
            sqlite_where=AGAIN,
            postgresql_where=AGAIN,
            if_not_exists=True,
        )


def downgrade() -> None:
    """A downgrade would lose the dispatch log."""
    raise NotImplementedError("restore a backup instead")
