"""Failure fingerprints of dead requests, owners of archive segments, deletions, notices.

Idempotent like every script here: each step asks whether it is done already.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0007"
down_revision = "0006"

BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
LONG_TEXT = sa.Text().with_variant(
    mysql.MEDIUMTEXT(charset="utf8mb4", collation="utf8mb4_bin"), "mysql", "mariadb"
)
BYTES = sa.LargeBinary().with_variant(mysql.LONGBLOB(), "mysql", "mariadb")
DEAD = sa.text("state = 5")


def _name(length: int) -> sa.String:
    exact = mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin")
    return sa.String(length).with_variant(exact, "mysql", "mariadb")


def _add(table: str, *columns: sa.Column[object]) -> None:
    there = {column["name"] for column in sa.inspect(op.get_bind()).get_columns(table)}
    for column in columns:
        if column.name not in there:
            op.add_column(table, column)


def upgrade() -> None:
    _add("requests", sa.Column("fault", sa.BigInteger(), nullable=True))
    _add("requests", sa.Column("died_at", sa.Float(53), nullable=True))
    _add("segments", sa.Column("deleted_at", sa.Float(53), nullable=True))
    _add("segments", sa.Column("gone", sa.SmallInteger(), nullable=True))
    _tables()
    _old_rows()
    op.create_index(
        "requests_dead",
        "requests",
        ["run", "fault", "host", "died_at", "state"],
        sqlite_where=DEAD,
        postgresql_where=DEAD,
        if_not_exists=True,
    )
    op.create_index("runs_ended", "runs", ["state", "changed_at"], if_not_exists=True)


def _tables() -> None:
    op.create_table(
        "faults",
        sa.Column("id", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("failure", _name(16), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("text", _name(300), nullable=False),
        if_not_exists=True,
    )
    op.create_table(
        "segment_runs",
        sa.Column("segment", _name(128), primary_key=True),
        sa.Column("run", BIG, primary_key=True, autoincrement=False),
        sa.Column("n", sa.BigInteger(), nullable=False),
        if_not_exists=True,
    )
    op.create_index("ix_segment_runs_run", "segment_runs", ["run"], if_not_exists=True)
    op.create_table(
        "deletions",
        sa.Column("run", BIG, primary_key=True, autoincrement=False),
        sa.Column("kind", _name(16), primary_key=True),
        sa.Column("at", sa.Float(53), nullable=False),
        sa.Column("upto", sa.BigInteger(), nullable=False),
        sa.Column("n", sa.BigInteger(), nullable=False),
        sa.Column("done", sa.SmallInteger(), nullable=False),
        if_not_exists=True,
    )
    op.create_table(
        "endings",
        sa.Column("id", BIG, primary_key=True, autoincrement=True),
        sa.Column("run", _name(64), nullable=False),
        sa.Column("state", _name(16), nullable=False),
        sa.Column("reason", LONG_TEXT, nullable=False),
        sa.Column("at", sa.Float(53), nullable=False),
        sqlite_autoincrement=True,
        if_not_exists=True,
    )
    op.create_table(
        "notices",
        sa.Column("id", _name(64), primary_key=True),
        sa.Column("run", _name(64), nullable=False),
        sa.Column("job", _name(200), nullable=False),
        sa.Column("kind", _name(16), nullable=False),
        sa.Column("target", LONG_TEXT, nullable=False),
        sa.Column("secret", _name(64), nullable=False),
        sa.Column("body", BYTES, nullable=False),
        sa.Column("state", _name(16), nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("due_at", sa.Float(53), nullable=False),
        sa.Column("created_at", sa.Float(53), nullable=False),
        sa.Column("error", LONG_TEXT, nullable=False),
        if_not_exists=True,
    )
    op.create_index("notices_due", "notices", ["state", "due_at"], if_not_exists=True)


def _old_rows() -> None:
    """Earlier dead requests have no fingerprint; earlier segments belong to their runs."""
    op.execute("UPDATE requests SET fault = 0, died_at = created_at WHERE state = 5")
    op.execute("DELETE FROM segment_runs")
    op.execute(
        "INSERT INTO segment_runs (segment, run, n) SELECT attempts.segment, requests.run,"
        " SUM(attempts.length) FROM attempts JOIN requests ON requests.id = attempts.request"
        " WHERE attempts.segment <> '' GROUP BY attempts.segment, requests.run"
    )


def downgrade() -> None:
    """A downgrade would leave segments without owners."""
    raise NotImplementedError("restore a backup instead")
