"""Reads the rows for an explanation: runs, blocks, hosts. Run by centers only.

Used by `explain.py`; each function makes one or two lookups by a primary key or an index.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import sqlalchemy as sa

from skep.model.hosts.politeness import HostPoliteness
from skep.model.run import Run
from skep.model.states import BlockState
from skep.store.ports.waits import BlockFacts, Hold, HostFacts, InHand
from skep.store.sql.engine.predicates import USING_BLOCKS
from skep.store.sql.hosts.rows import hosts_of
from skep.store.sql.runs.runs import run_in
from skep.store.sql.schema.blocks import block_history, blocks
from skep.store.sql.schema.hosts import site_holds
from skep.store.sql.schema.runs import runs

_HOLDS = (
    sa.select(
        *(site_holds.c.host, site_holds.c.block, site_holds.c.until, site_holds.c.spacing),
        *(blocks.c.agent, blocks.c.state, blocks.c.open),
        runs.c.id.label("run_id"),
    )
    .outerjoin(blocks, blocks.c.id == site_holds.c.block)
    .outerjoin(runs, runs.c.no == blocks.c.run)
)
_BLOCK = sa.select(blocks, runs.c.id.label("run_id")).join(runs, runs.c.no == blocks.c.run)


def run_by_number(connection: sa.Connection, number: int) -> Run:
    """A run that is known to exist."""
    return run_in(connection.execute(sa.select(runs).where(runs.c.no == number)).one())


def block_facts(connection: sa.Connection, block_id: int) -> BlockFacts | None:
    """The state of a block, with the last entry of its history."""
    row = connection.execute(_BLOCK.where(blocks.c.id == block_id)).first()
    if row is None:
        return None
    lines = sa.select(block_history.c.at, block_history.c.detail)
    lines = lines.where(block_history.c.block == block_id)
    last = connection.execute(lines.order_by(block_history.c.id.desc()).limit(1)).first()
    return BlockFacts(
        id=row.id,
        run=row.run_id,
        priority=row.priority,
        state=BlockState(row.state),
        token=row.token,
        agent=row.agent,
        target=row.target,
        lease_until=row.lease_until,
        changed_at=last.at if last else row.created_at,
        detail=last.detail if last else "",
        size=row.size,
        open=row.open,
        losses=row.losses,
        expires_at=row.expires_at,
        answer_by=row.answer_by,
    )


def host_facts(connection: sa.Connection, hosts: Collection[str]) -> dict[str, HostFacts]:
    """These few hosts, the unknown ones too."""
    if not hosts:
        return {}
    known = hosts_of(connection, hosts)
    holds = {
        row.host: _hold(row)
        for row in connection.execute(_HOLDS.where(site_holds.c.host.in_(sorted(hosts))))
    }
    return {
        host: HostFacts(known.get(host) or HostPoliteness(host), holds.get(host), host in known)
        for host in hosts
    }


def _hold(row: Any) -> Hold:
    state = None if row.state is None else BlockState(row.state)
    return Hold(
        row.block, row.until, row.spacing, row.run_id or "", row.agent or "", state, row.open or 0
    )


def hosts_held(connection: sa.Connection, block_id: int, limit: int) -> list[str]:
    """Hosts that a block holds."""
    query = sa.select(site_holds.c.host).where(site_holds.c.block == block_id)
    return list(connection.execute(query.order_by(site_holds.c.host).limit(limit)).scalars())


def in_hands(connection: sa.Connection, *conditions: Any) -> list[InHand]:
    """The leased blocks of agents that match the conditions.

    It reads as many blocks as are leased at this time, never the history of a run: a condition
    must not lead the planner to another index than that of leased blocks.
    """
    sums = (sa.func.count().label("blocks"), sa.func.sum(blocks.c.open).label("requests"))
    query = sa.select(blocks.c.agent, *sums).where(USING_BLOCKS, *conditions)
    rows = connection.execute(query.group_by(blocks.c.agent).order_by(blocks.c.agent))
    return [InHand(row.agent, int(row.blocks), int(row.requests or 0)) for row in rows]
