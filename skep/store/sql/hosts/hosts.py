"""Hosts: rules, views, and waking requests that wait for a host. Implements `Hosts`.

Run by centers only. Rows are never deleted: the counts of a host stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from skep.errors import NotFound
from skep.model.hosts.host import SiteRule
from skep.model.hosts.politeness import Politeness
from skep.store.ports.hosts import HeldHost, HostRow
from skep.store.sql.blocks.unpack import unpack_resting
from skep.store.sql.engine.database import Database, Tx
from skep.store.sql.engine.predicates import in_list
from skep.store.sql.hosts.holds import watch
from skep.store.sql.hosts.robots_probes import forget_host_probes
from skep.store.sql.hosts.rows import host_in_row, make_hosts
from skep.store.sql.hosts.wake_hosts import wake_hosts
from skep.store.sql.schema.blocks import blocks
from skep.store.sql.schema.hosts import host_probes, site_holds, sites
from skep.store.sql.schema.runs import runs

#: Values of a host of which only the rule and the counts are known.
_FORGOTTEN = {"delay": 0.0, "crawl_delay": 0.0, "cooling_until": 0.0, "reason": "", "strikes": 0}


class SqlHosts:
    """Rows of `sites` and `site_holds`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def all(self, limit: int, after: str = "") -> list[HostRow]:
        query = LISTED_HOSTS.where(sites.c.host > after).order_by(sites.c.host).limit(limit)
        return await self._database.read(lambda c: [host_in(row) for row in c.execute(query)])

    async def get(self, host: str) -> HostRow:
        row = await self._database.read(
            lambda c: c.execute(LISTED_HOSTS.where(sites.c.host == host)).first()
        )
        if row is None:
            raise NotFound(f"host {host} is not known: it has no requests and no rule")
        return host_in(row)

    async def set_rule(self, host: str, rule: SiteRule, now: float) -> None:
        robots = None if rule.robots is None else int(rule.robots)
        values = {"rate": rule.rate, "concurrency": rule.concurrency, "robots": robots}

        def work(tx: Tx) -> None:
            make_hosts(tx.connection, tx.dialect, [host])
            tx.execute(sa.update(sites).where(sites.c.host == host).values(**values))
            watch(tx, {host: now})

        await self._database.write(work)

    async def clear(self, host: str, now: float) -> None:
        values = {"rate": None, "concurrency": None, "robots": None, **_FORGOTTEN}
        change = sa.update(sites).where(sites.c.host == host).values(**values)

        def work(tx: Tx) -> None:
            if tx.execute(sa.select(sites.c.host).where(sites.c.host == host)).first() is None:
                raise NotFound(f"host {host} is not known, so there is nothing to clear")
            tx.execute(change)
            forget_host_probes(tx, host)
            free = sa.update(site_holds).where(site_holds.c.host == host)
            tx.execute(free.where(site_holds.c.block.is_(None)).values(until=now))
            watch(tx, {host: now})

        await self._database.write(work)

    async def held(self, block_ids: Sequence[int]) -> list[HeldHost]:
        if not block_ids:
            return []
        query = (
            sa.select(site_holds.c.block, sites, host_probes.c.failure, host_probes.c.detail)
            .join(sites, sites.c.host == site_holds.c.host)
            .join(blocks, blocks.c.id == site_holds.c.block)
            .outerjoin(host_probes, _given_up)
            .where(in_list(site_holds.c.block, block_ids))
            .order_by(site_holds.c.host)
        )
        rows = await self._database.read(lambda c: c.execute(query).all())
        return [
            HeldHost(row.block, host_in_row(row), row.failure or "", row.detail or "")
            for row in rows
        ]

    async def wake(self, now: float, politeness: Politeness, limit: int) -> int:
        due = sa.select(site_holds.c.host).where(
            site_holds.c.block.is_(None), site_holds.c.until <= now
        )
        # Usually there is none, and a read costs less than a transaction.
        if await self._database.read(lambda c: c.execute(due.limit(1)).first()) is None:
            return 0
        return await self._database.write(lambda tx: wake_hosts(tx, now, politeness, limit))

    async def unpack(self, now: float, limit: int) -> int:
        return await self._database.write(lambda tx: unpack_resting(tx, now, limit))


_given_up = sa.and_(
    host_probes.c.run == blocks.c.run,
    host_probes.c.host == site_holds.c.host,
    host_probes.c.given_up == 1,
)
LISTED_HOSTS = (
    sa.select(
        sites,
        blocks.c.id.label("block"),
        blocks.c.agent.label("agent"),
        runs.c.id.label("run_id"),
    )
    .outerjoin(site_holds, site_holds.c.host == sites.c.host)
    .outerjoin(blocks, blocks.c.id == site_holds.c.block)
    .outerjoin(runs, runs.c.no == blocks.c.run)
)


def host_in(row: Any) -> HostRow:
    """A host from its row."""
    return HostRow(
        host_in_row(row),
        row.requests,
        row.failed,
        row.refused,
        row.barred,
        row.deferred,
        row.received,
        row.elapsed_us,
        row.last_at,
        row.agent or "",
        row.run_id or "",
        row.block,
    )
