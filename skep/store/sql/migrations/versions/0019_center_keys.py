"""Secrets that all centers of a store share, such as the one for agents' files.

Idempotent like every script here: each step asks whether it is done already.
"""

from __future__ import annotations

from alembic import op

from skep.store.sql.schema.agents import center_keys

revision = "0019"
down_revision = "0018"


def upgrade() -> None:
    center_keys.create(op.get_bind(), checkfirst=True)


def downgrade() -> None:
    """A downgrade would make agents' files unreadable."""
    raise NotImplementedError("restore a backup instead")
