"""Encrypted secrets. Implements `Secrets` of `store/ports/people.py`; run by centers only."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from skep.errors import Conflict
from skep.model.people.stored_secret import SecretRow
from skep.store.sql.engine.database import Database, Tx
from skep.store.sql.schema.secrets import secrets

_COLUMNS = ("name", "purpose", "key_id", "sealed", "changed_at", "changed_by")


class SqlSecrets:
    """Rows of `secrets`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def all(self) -> list[SecretRow]:
        query = sa.select(secrets).order_by(secrets.c.name)
        rows = await self._database.read(lambda connection: connection.execute(query).all())
        return [_row(row) for row in rows]

    async def put(self, row: SecretRow, limit: int) -> None:
        values = _values(row)

        def work(tx: Tx) -> None:
            others = sa.select(sa.func.count()).select_from(secrets)
            if tx.execute(others.where(secrets.c.name != row.name)).scalar_one() >= limit:
                raise Conflict(f"{limit} secrets are stored; remove one with `skep secret rm`")
            row_values = tuple(values[name] for name in _COLUMNS)
            if not tx.dialect.insert_new(tx.connection, secrets, _COLUMNS, [row_values]):
                tx.execute(sa.update(secrets).where(secrets.c.name == row.name).values(**values))

        await self._database.write(work)

    async def replace(self, old: SecretRow, new: SecretRow) -> bool:
        # Two values that were encrypted are never equal, so `sealed` tells whether it is the same.
        same = secrets.c.name == old.name, secrets.c.sealed == old.sealed
        change = sa.update(secrets).where(*same).values(**_values(new))
        return await self._database.write(lambda tx: bool(tx.execute(change).rowcount))

    async def remove(self, name: str) -> bool:
        gone = sa.delete(secrets).where(secrets.c.name == name)
        return await self._database.write(lambda tx: bool(tx.execute(gone).rowcount))


def _values(row: SecretRow) -> dict[str, Any]:
    parts = (row.name, row.use, row.key, row.sealed, row.changed_at, row.changed_by[:300])
    return dict(zip(_COLUMNS, parts, strict=True))


def _row(row: Any) -> SecretRow:
    sealed = bytes(row.sealed)
    return SecretRow(row.name, row.purpose, row.key_id, sealed, row.changed_at, row.changed_by)
