"""Lists: indexes, labels of jobs and runs, failure classes of requests, and saved views.

Idempotent like every script here: each step asks whether it is done already. Indexes that
SQLite and PostgreSQL have for failed requests only do not exist on MySQL.
"""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

from skep.store.sql.schema.columns import Bytes, name_of
from skep.store.sql.schema.jobs import job_labels
from skep.store.sql.schema.requests import request_spans
from skep.store.sql.schema.runs import run_labels
from skep.store.sql.schema.views import views

revision = "0021"
down_revision = "0020"

DONE, DEAD = 4, 5
PARTIAL = {
    "requests_failed": ("failure IS NOT NULL AND state <> 4", ["failure", "id"]),
    "requests_dead_ids": ("state = 5", ["id"]),
    "requests_cancelled": ("state = 6", ["id"]),
    "requests_expired": ("state = 7", ["id"]),
    "requests_dead_hosts": ("state = 5", ["host", "id"]),
    "requests_dead_groups": ("state = 5", ["fault", "host", "id"]),
}
WHOLE = {
    "runs_created": ("runs", ["created_at", "no"]),
    "runs_of_job": ("runs", ["job", "created_at", "no"]),
    "runs_in_state": ("runs", ["state", "created_at", "no"]),
    "jobs_in_state": ("jobs", ["deleted", "enabled", "name"]),
}


def upgrade() -> None:
    bind = op.get_bind()
    new = _add("requests", sa.Column("failure", name_of(16), nullable=True))
    _add("runs", sa.Column("labels", Bytes, nullable=True))
    _add("job_runs", sa.Column("labels", name_of(4000), nullable=False, server_default=""))
    if new:
        _name_failures(bind)
    for table in (run_labels, job_labels, views, request_spans):
        table.create(bind, checkfirst=True)
    _create_indexes(bind)
    _fill_spans(bind)


def _add(table: str, column: sa.Column[object]) -> bool:
    there = {one["name"] for one in sa.inspect(op.get_bind()).get_columns(table)}
    if column.name not in there:
        op.add_column(table, column)
    return column.name not in there


def _create_indexes(bind: sa.Connection) -> None:
    for name, (table, columns) in WHOLE.items():
        _create(bind, name, table, columns)
    if bind.dialect.name in {"sqlite", "postgresql"}:
        for name, (predicate, columns) in PARTIAL.items():
            _create(bind, name, "requests", columns, sa.text(predicate))


def _create(
    bind: sa.Connection,
    name: str,
    table: str,
    columns: Sequence[str],
    where: sa.TextClause | None = None,
) -> None:
    if name not in {index["name"] for index in sa.inspect(bind).get_indexes(table)}:
        op.create_index(name, table, list(columns), sqlite_where=where, postgresql_where=where)


def _name_failures(bind: sa.Connection) -> None:
    """From the failure group of a dead request, and from the last attempt at others."""
    group = "SELECT failure FROM faults WHERE faults.id = requests.fault"
    last = (
        "SELECT NULLIF(attempts.failure, '') FROM attempts WHERE attempts.request = requests.id"
        " ORDER BY attempts.block DESC, attempts.token DESC LIMIT 1"
    )
    for value, which in ((group, f"state = {DEAD}"), (last, f"state NOT IN ({DONE}, {DEAD})")):
        bind.exec_driver_sql(
            f"UPDATE requests SET failure = ({value}) WHERE {which} AND failures > 0"  # noqa: S608
        )


def _fill_spans(bind: sa.Connection) -> None:
    if bind.execute(sa.select(request_spans.c.low).limit(1)).first() is not None:
        return
    floor = "CAST(created_at / 60 AS INTEGER)"
    if bind.dialect.name != "sqlite":
        floor = "FLOOR(created_at / 60)"
    for kind, of in ((0, "run"), (1, floor)):
        bind.exec_driver_sql(
            f"INSERT INTO request_spans (kind, number, low, high)"  # noqa: S608 - own words
            f" SELECT {kind}, {of}, MIN(id), MAX(id) FROM requests GROUP BY {of}"
        )


def downgrade() -> None:
    """Earlier versions would not write the new spans."""
    raise NotImplementedError("restore a backup instead")
