"""Why a run ended, figures of runs, last calls of drivers, answer deadlines.

Idempotent like every script here: each step asks whether it is done already.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0006"
down_revision = "0005"

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
LONG_TEXT = sa.Text().with_variant(
    mysql.MEDIUMTEXT(charset="utf8mb4", collation="utf8mb4_bin"), "mysql", "mariadb"
)


def _name(length: int) -> sa.String:
    exact = mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin")
    return sa.String(length).with_variant(exact, "mysql", "mariadb")


def _add(table: str, *columns: sa.Column[object]) -> None:
    there = {column["name"] for column in sa.inspect(op.get_bind()).get_columns(table)}
    for column in columns:
        if column.name not in there:
            op.add_column(table, column)


def upgrade() -> None:
    _add(
        "runs",
        sa.Column("reason", LONG_TEXT, nullable=True),
        sa.Column("changed_at", sa.Float(53), nullable=True),
    )
    _add("blocks", sa.Column("answer_by", sa.Float(53), nullable=True))
    op.create_index("blocks_of_run", "blocks", ["run", "id"], if_not_exists=True)
    _add(
        "drivers",
        sa.Column("heard_at", sa.Float(53), nullable=True),
        sa.Column("patience", sa.Float(53), nullable=True),
        sa.Column("asked", _name(16), nullable=True),
    )
    op.create_table(
        "figures",
        sa.Column("run", BIG, primary_key=True, autoincrement=False),
        sa.Column("name", _name(80), primary_key=True),
        sa.Column("n", sa.BigInteger(), nullable=False),
        if_not_exists=True,
    )


def downgrade() -> None:
    """A downgrade would lose why runs ended."""
    raise NotImplementedError("restore a backup instead")
