"""Saved views. Implements `Views` of `store/ports/views.py`; run by centers only."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from skep.errors import Conflict
from skep.model.view import View
from skep.store.sql.engine.database import Database, Tx
from skep.store.sql.schema.views import views

_COLUMNS = ("owner", "name", "resource", "filter", "shared", "changed_at")
#: Shared views of others that are listed.
SHARED_LIMIT = 2000


class SqlViews:
    """Rows of `views`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def save(self, view: View, limit: int) -> None:
        values = {name: getattr(view, name) for name in _COLUMNS} | {"shared": int(view.shared)}
        row = tuple(values[name] for name in _COLUMNS)

        def work(tx: Tx) -> None:
            count = sa.select(sa.func.count()).select_from(views)
            others = count.where(views.c.owner == view.owner, views.c.name != view.name)
            if tx.execute(others).scalar_one() >= limit:
                raise Conflict(f"{view.owner} has {limit} views; remove one with `skep view rm`")
            if not tx.dialect.insert_new(tx.connection, views, _COLUMNS, [row]):
                tx.execute(sa.update(views).where(*_same(view.owner, view.name)).values(**values))

        await self._database.write(work)

    async def seen_by(self, owner: str) -> list[View]:
        own = sa.select(views).where(views.c.owner == owner).order_by(views.c.name)
        others = sa.select(views).where(views.c.shared == 1, views.c.owner != owner)
        others = others.order_by(views.c.name, views.c.owner).limit(SHARED_LIMIT)

        def work(connection: sa.Connection) -> list[View]:
            return [_view(row) for query in (own, others) for row in connection.execute(query)]

        return await self._database.read(work)

    async def remove(self, owner: str, name: str) -> bool:
        gone = sa.delete(views).where(*_same(owner, name))
        return await self._database.write(lambda tx: bool(tx.execute(gone).rowcount))


def _same(owner: str, name: str) -> tuple[sa.ColumnElement[bool], ...]:
    return views.c.owner == owner, views.c.name == name


def _view(row: Any) -> View:
    return View(row.name, row.resource, row.filter, row.owner, bool(row.shared), row.changed_at)
