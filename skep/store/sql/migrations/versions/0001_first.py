"""The first schema.

Every step asks whether it is done already: MariaDB and MySQL commit each CREATE by itself,
so a crash in the middle leaves a part behind and the script starts again from the top.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from skep.store.sql.tables import metadata

revision = "0001"
down_revision = None


def upgrade() -> None:
    connection = op.get_bind()
    metadata.create_all(connection, checkfirst=True)
    inspector = sa.inspect(connection)
    for table in metadata.sorted_tables:
        there = {index["name"] for index in inspector.get_indexes(table.name)}
        for index in table.indexes:
            if index.name not in there:
                index.create(connection)


def downgrade() -> None:
    metadata.drop_all(op.get_bind())
