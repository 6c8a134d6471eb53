"""Partial indexes of requests no longer start with the state in their predicate.

PostgreSQL leaves such a state out of the search and read these indexes from end to end.
Idempotent like every script here: an index is dropped and created in any case.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"

WAITING, DELAYED = "state = 0", "state = 3"
INDEXES = {
    "requests_waiting": (WAITING, ["run", "priority", "id"]),
    "requests_again": ("state = 0 AND failures > 0", ["run", "priority", "id"]),
    "requests_delayed": (DELAYED, ["not_before"]),
    "requests_mortal": ("expires_at IS NOT NULL AND state IN (0, 3)", ["expires_at"]),
    "requests_parked": (DELAYED, ["host", "priority", "not_before"]),
}


def upgrade() -> None:
    if op.get_bind().dialect.name not in {"sqlite", "postgresql"}:
        return
    for name, (predicate, columns) in INDEXES.items():
        where = sa.text(predicate)
        op.drop_index(name, "requests", if_exists=True)
        op.create_index(name, "requests", columns, sqlite_where=where, postgresql_where=where)


def downgrade() -> None:
    """The earlier indexes would be slow."""
    raise NotImplementedError("restore a backup instead")
