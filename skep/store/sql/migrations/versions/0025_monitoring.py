"""Figures over time, alert rules and states, failure groups as rows, run summaries.

Idempotent like every script here: each step asks whether it is done already.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import mysql

revision = "0025"
down_revision = "0024"

BYTES = sa.LargeBinary().with_variant(mysql.LONGBLOB(), "mysql", "mariadb")
LONG_TEXT = sa.Text().with_variant(
    mysql.MEDIUMTEXT(charset="utf8mb4", collation="utf8mb4_bin"), "mysql", "mariadb"
)


def _name(length: int) -> sa.String:
    exact = mysql.VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin")
    return sa.String(length).with_variant(exact, "mysql", "mariadb")


def _column(name: str, kind: Any, default: str) -> sa.Column[object]:
    return sa.Column(name, kind, nullable=False, server_default=default)


def upgrade() -> None:
    _alerts()
    _series()
    _failure_groups()
    _runs()


def _alerts() -> None:
    there = {column["name"] for column in sa.inspect(op.get_bind()).get_columns("alerts")}
    columns = (
        _column("state", _name(16), "firing"),
        _column("severity", _name(16), "warning"),
        _column("by_rule", sa.SmallInteger(), "0"),
        _column("changed_at", sa.Float(53), "0"),
        _column("changes", sa.Integer(), "1"),
        _column("untold", sa.SmallInteger(), "0"),
        _column("acknowledged_at", sa.Float(53), "0"),
        _column("acknowledged_by", _name(100), ""),
        _column("muted_until", sa.Float(53), "0"),
    )
    for column in columns:
        if column.name not in there:
            op.add_column("alerts", column)
    op.create_index("alerts_untold", "alerts", ["untold"], if_not_exists=True)
    op.create_index("alerts_last", "alerts", ["last_at"], if_not_exists=True)
    op.create_table(
        "alert_rules",
        sa.Column("name", _name(32), primary_key=True),
        sa.Column("body", BYTES, nullable=False),
        sa.Column("changed_at", sa.Float(53), nullable=False),
        if_not_exists=True,
    )


def _series() -> None:
    op.create_table(
        "series",
        sa.Column("step", sa.Integer(), primary_key=True, autoincrement=False),
        sa.Column("run", _name(64), primary_key=True),
        sa.Column("at", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("writer", _name(64), primary_key=True),
        sa.Column("cells", BYTES, nullable=False),
        sa.Column("rolled", sa.SmallInteger(), nullable=False),
        if_not_exists=True,
    )
    op.create_index("series_age", "series", ["step", "at"], if_not_exists=True)
    op.create_index("series_new", "series", ["rolled", "at"], if_not_exists=True)
    op.create_table(
        "monitor_leases",
        sa.Column("name", _name(32), primary_key=True),
        sa.Column("holder", _name(64), nullable=False),
        sa.Column("token", sa.BigInteger(), nullable=False),
        sa.Column("held_until", sa.Float(53), nullable=False),
        if_not_exists=True,
    )


def _failure_groups() -> None:
    """With the groups of the requests that are dead already."""
    if "failure_groups" in sa.inspect(op.get_bind()).get_table_names():
        return
    op.create_table(
        "failure_groups",
        sa.Column("fault", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("host", _name(255), primary_key=True),
        sa.Column("died", sa.BigInteger(), nullable=False),
        sa.Column("gone", sa.BigInteger(), nullable=False),
        sa.Column("first_at", sa.Float(53), nullable=False),
        sa.Column("last_at", sa.Float(53), nullable=False),
        sa.Column("fresh", sa.SmallInteger(), nullable=False),
        _column("counted", sa.BigInteger(), "0"),
        _column("state", _name(16), "open"),
        _column("note", _name(500), ""),
        _column("changed_at", sa.Float(53), "0"),
        _column("changed_by", _name(100), ""),
        _column("reopened", sa.Integer(), "0"),
        sa.Column("history", BYTES, nullable=True),
    )
    for name, columns in (
        ("failure_groups_last", ["last_at"]),
        ("failure_groups_fresh", ["fresh"]),
        ("failure_groups_state", ["state", "last_at"]),
    ):
        op.create_index(name, "failure_groups", columns)
    op.execute(
        "INSERT INTO failure_groups (fault, host, died, gone, first_at, last_at, fresh, counted)"
        " SELECT fault, host, COUNT(*), 0, COALESCE(MIN(died_at), 0), COALESCE(MAX(died_at), 0),"
        " 0, COUNT(*) FROM requests WHERE state = 5 AND fault IS NOT NULL GROUP BY fault, host"
    )


def _runs() -> None:
    op.create_table(
        "run_summaries",
        sa.Column("run", _name(64), primary_key=True),
        sa.Column("job", _name(200), nullable=False),
        sa.Column("state", _name(16), nullable=False),
        sa.Column("ended_at", sa.Float(53), nullable=False),
        sa.Column("judged", sa.SmallInteger(), nullable=False),
        sa.Column("body", BYTES, nullable=True),
        sa.Column("finding", LONG_TEXT, nullable=False),
        if_not_exists=True,
    )
    for name, columns in (
        ("run_summaries_of_job", ["job", "ended_at"]),
        ("run_summaries_new", ["judged", "ended_at"]),
    ):
        op.create_index(name, "run_summaries", columns, if_not_exists=True)


def downgrade() -> None:
    """A downgrade would lose figures, rules and notes."""
    raise NotImplementedError("restore a backup instead")
