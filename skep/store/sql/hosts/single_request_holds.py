"""Blocks that were split off for one request claim their host when they are leased.

Run by centers only, inside the transaction of a lease. Several such blocks of one host can wait
at the same time; the one that has the hold is leased, the others stay claimable. It is apart from
`holds`, which `blocks` imports, because it needs `blocks` and `runs` itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from skep.model.hosts.politeness import HostPoliteness, Politeness
from skep.store.sql.blocks.reclaim import SPLIT_AFTER
from skep.store.sql.blocks.rows import ids_in
from skep.store.sql.engine.database import Tx
from skep.store.sql.engine.dialect import id_list
from skep.store.sql.hosts.holds import Claim, claim, give_to
from skep.store.sql.hosts.rows import hosts_of, make_hosts
from skep.store.sql.runs.runs import HeldRun
from skep.store.sql.schema.hosts import site_holds


def must_wait(
    tx: Tx,
    rows: Mapping[int, Any],
    bodies: Mapping[int, bytes],
    of: Mapping[int, HeldRun],
    now: float,
    politeness: Politeness,
) -> set[int]:
    """Those of these blocks whose host another block holds; the others hold theirs now."""
    single = {
        ids_in(bodies[block])[0]: block
        for block, row in rows.items()
        if row.losses >= SPLIT_AFTER and row.size == 1
    }
    if not single:
        return set()
    found = tx.sql(f"SELECT id, host FROM requests WHERE id IN ({id_list(single)})")  # noqa: S608
    hosts = {single[row.id]: row.host for row in found}
    sites = hosts_of(tx.connection, set(hosts.values()))
    waits: set[int] = set()
    for block, host in sorted(hosts.items(), key=lambda item: (item[1], item[0])):
        rules = of[rows[block].run].rules
        pace = politeness.pace(sites.get(host) or HostPoliteness(host), rules, now)
        if pace is None:
            continue
        make_hosts(tx.connection, tx.dialect, [host])
        if not _take(tx, block, Claim(host, now + pace.wait + pace.spacing, pace.spacing)):
            waits.add(block)
    return waits


def _take(tx: Tx, block: int, wanted: Claim) -> bool:
    mine = sa.select(site_holds.c.block).where(site_holds.c.host == wanted.host)
    if tx.execute(mine).scalar() == block:
        return True
    if claim(tx, [wanted]):
        return False
    give_to(tx, {block: [wanted.host]})
    return True
