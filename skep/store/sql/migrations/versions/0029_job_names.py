"""Indexes of jobs in the order of bytes, on PostgreSQL: pages follow it, and it finds beginnings.

Idempotent like every script here. Other databases have their names in this order anyway.
"""

from __future__ import annotations

from alembic import op

revision = "0029"
down_revision = "0028"


def upgrade() -> None:
    if op.get_bind().dialect.name != "postgresql":
        return
    for name, columns in (
        ("jobs_by_name", 'name COLLATE "C"'),
        ("jobs_by_state", 'deleted, enabled, name COLLATE "C"'),
    ):
        op.execute(f"CREATE INDEX IF NOT EXISTS {name} ON jobs ({columns})")
