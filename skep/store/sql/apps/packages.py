"""Packages of applications, in chunks. Implements `Packages`; run by centers only.

Calls that add to a package or delete from it lock its row first: a package that is used again
while it is being deleted is either complete or started anew, never marked complete with
missing chunks.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import sqlalchemy as sa

from skep.errors import NotFound
from skep.model.states import RunState
from skep.store.ports.apps import Package
from skep.store.sql.engine.database import Database, Tx
from skep.store.sql.schema.apps import app_instances, app_runs, package_chunks, packages
from skep.store.sql.schema.runs import runs

_COLUMNS = ("digest", "kind", "name", "size", "complete", "used_at")
_CHUNK_COLUMNS = ("digest", "n", "data")
_ENDED = (str(RunState.FINISHED), str(RunState.CANCELLED))


class SqlPackages:
    """Rows of `packages` and `package_chunks`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def begin(self, package: Package, now: float) -> bool:
        new = (package.digest, package.kind, package.name, package.size, 0, now)
        change = sa.update(packages).where(packages.c.digest == package.digest)

        def work(tx: Tx) -> bool:
            tx.dialect.insert_new(tx.connection, packages, _COLUMNS, [new])
            row = _hold(tx, package.digest)
            # The same bytes may have had another wheel name: the newest name counts.
            tx.execute(change.values(kind=package.kind, name=package.name, used_at=now))
            return bool(row.complete)

        return await self._database.write(work)

    async def add(self, digest: str, n: int, data: bytes) -> None:
        def work(tx: Tx) -> None:
            _hold(tx, digest)
            row = (digest, n, data)
            tx.dialect.insert_new(tx.connection, package_chunks, _CHUNK_COLUMNS, [row])

        await self._database.write(work)

    async def finish(self, digest: str) -> bool:
        size = sa.func.length(package_chunks.c.data)
        total = sa.select(sa.func.sum(size)).where(package_chunks.c.digest == digest)

        def work(tx: Tx) -> bool:
            row = _hold(tx, digest)
            if int(tx.execute(total).scalar() or 0) != row.size:
                return False
            tx.execute(sa.update(packages).where(packages.c.digest == digest).values(complete=1))
            return True

        return await self._database.write(work)

    async def get(self, digest: str) -> Package:
        query = sa.select(packages).where(packages.c.digest == digest, packages.c.complete == 1)
        row = await self._database.read(lambda c: c.execute(query).first())
        if row is None:
            raise NotFound(f"there is no package {digest}")
        return Package(row.digest, row.kind, row.name, row.size)

    async def chunk(self, digest: str, n: int) -> bytes:
        query = sa.select(package_chunks.c.data)
        query = query.where(package_chunks.c.digest == digest, package_chunks.c.n == n)
        return bytes(await self._database.read(lambda c: c.execute(query).scalar()) or b"")

    async def wanted_by(self, digest: str, agent: str) -> bool:
        query = (
            sa.select(app_instances.c.no)
            .join(app_runs, app_runs.c.run == app_instances.c.run)
            .where(app_instances.c.agent == agent, app_runs.c.package == digest)
            .limit(1)
        )
        found = await self._database.read(lambda c: c.execute(query).first())
        return found is not None

    async def forget(self, before: float, limit: int) -> int:
        old = sa.select(packages.c.digest).where(packages.c.used_at < before, ~_needed())
        old = old.order_by(packages.c.used_at).limit(limit)
        # Most checks find none, so read before writing.
        names = await self._database.read(lambda c: list(c.execute(old).scalars()))
        gone = 0
        for digest in names:
            if gone < limit:
                gone += await self._database.write(partial(_gone, digest, before, limit - gone))
        return gone


def _needed() -> sa.ColumnElement[bool]:
    """Whether a run that has not ended can start another instance of it."""
    return (
        sa.exists()
        .where(app_runs.c.package == packages.c.digest)
        .where(runs.c.id == app_runs.c.run, runs.c.state.not_in(_ENDED))
        .correlate(packages)
    )


def _hold(tx: Tx, digest: str) -> Any:
    query = sa.select(packages).where(packages.c.digest == digest).with_for_update()
    row = tx.execute(query).first()
    if row is None:
        raise NotFound(f"there is no package {digest}")
    return row


def _gone(digest: str, before: float, limit: int, tx: Tx) -> int:
    """Delete some chunks, and the package after its last one."""
    mine = sa.and_(packages.c.digest == digest, packages.c.used_at < before, ~_needed())
    if tx.execute(sa.select(packages).where(mine).with_for_update()).first() is None:
        return 0
    tx.execute(sa.update(packages).where(packages.c.digest == digest).values(complete=0))
    chunks = package_chunks.c.digest == digest
    query = sa.select(package_chunks.c.n).where(chunks).order_by(package_chunks.c.n).limit(limit)
    numbers = list(tx.execute(query).scalars())
    tx.execute(sa.delete(package_chunks).where(chunks, package_chunks.c.n.in_(numbers)))
    if len(numbers) < limit:
        tx.execute(sa.delete(packages).where(packages.c.digest == digest))
    return len(numbers)
