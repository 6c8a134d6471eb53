"""Holds: which open block holds which host. Run by centers only, inside a transaction.

A rate-limited host is in one open block at a time; the row in `site_holds` names the block. A row
without a block was released: the dispatcher checks it, wakes requests that wait for the host and
deletes it when there are none. So every parked request has a row that will wake it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

import sqlalchemy as sa

from skep.store.sql.engine.database import Tx
from skep.store.sql.engine.dialect import id_list
from skep.store.sql.hosts.rows import in_chunks
from skep.store.sql.schema.hosts import site_holds, sites

#: Stands for a block that is about to be created; never visible outside the transaction.
COMING = -1
_COLUMNS = ("host", "block", "until", "spacing")
_SETTLE = (
    sa.update(site_holds)
    .where(site_holds.c.host == sa.bindparam("site"))
    .values(block=sa.bindparam("of"))
)
_RENEW = (
    sa.update(site_holds)
    .where(site_holds.c.host == sa.bindparam("site"), site_holds.c.block.is_(None))
    .values(block=COMING, until=sa.bindparam("by"), spacing=sa.bindparam("every"))
)
_NEXT_START = (
    sa.update(sites)
    .where(sites.c.host == sa.bindparam("site"))
    .values(not_before=sa.bindparam("at"))
)


class Claim(NamedTuple):
    """A host that a block needs."""

    host: str
    #: When the block should be done with it.
    until: float
    spacing: float


def claim(tx: Tx, wanted: Iterable[Claim]) -> dict[str, float]:
    """Claim hosts for blocks that follow; returns those that other blocks hold, until when.

    In the order of the hosts, so that two centers do not deadlock.
    """
    claims = {one.host: one for one in sorted(wanted)}
    taken: dict[str, float] = {}
    missing = set(claims)
    while missing:
        found = _holds(tx, claims)
        taken = {
            host: until for host, (block, until) in found.items() if block not in (None, COMING)
        }
        mine = {host for host, (block, _) in found.items() if block == COMING}
        missing = claims.keys() - taken.keys() - mine
        if _claim_free(tx, [claims[host] for host in sorted(missing)], found) == len(missing):
            break
        # Another center was faster with some: it took them, or deleted rows without a block.
    return taken


def _claim_free(tx: Tx, claims: list[Claim], found: Collection[str]) -> int:
    """Claim hosts that no block holds; returns how many it succeeded with."""
    loose = [one for one in claims if one.host in found]
    fresh = [(one.host, COMING, one.until, one.spacing) for one in claims if one.host not in found]
    made = _take_loose(tx, loose) if loose else 0
    return made + tx.dialect.insert_new(tx.connection, site_holds, _COLUMNS, fresh)


def _take_loose(tx: Tx, claims: list[Claim]) -> int:
    values = [{"site": one.host, "by": one.until, "every": one.spacing} for one in claims]
    return sum(tx.execute(_RENEW, value).rowcount for value in values)


def _holds(tx: Tx, hosts: Collection[str]) -> dict[str, tuple[int | None, float]]:
    found: dict[str, tuple[int | None, float]] = {}
    for chunk in in_chunks(sorted(hosts)):
        query = sa.select(site_holds.c.host, site_holds.c.block, site_holds.c.until)
        for row in tx.execute(query.where(site_holds.c.host.in_(chunk))):
            found[row.host] = (row.block, row.until)
    return found


def give_to(tx: Tx, hosts_of: Mapping[int, Iterable[str]]) -> None:
    """Assign claimed hosts to the created blocks: block -> hosts."""
    rows = [{"site": host, "of": block} for block, hosts in hosts_of.items() for host in hosts]
    if rows:
        tx.execute(_SETTLE, sorted(rows, key=lambda row: str(row["site"])))


def watch(tx: Tx, until: Mapping[str, float]) -> None:
    """Let the dispatcher check hosts, each at its time; existing rows stay."""
    rows = [(host, when, 0.0) for host, when in sorted(until.items())]
    tx.dialect.insert_new(tx.connection, site_holds, ("host", "until", "spacing"), rows)


def held_by(connection: sa.Connection, block_ids: Collection[int]) -> dict[int, dict[str, float]]:
    """block -> its hosts with their spacing; blocks without hosts are absent."""
    if not block_ids:
        return {}
    found: dict[int, dict[str, float]] = {}
    rows = connection.exec_driver_sql(
        f"SELECT block, host, spacing FROM site_holds WHERE block IN ({id_list(block_ids)})"  # noqa: S608
    )
    for block, host, spacing in rows:
        found.setdefault(block, {})[host] = spacing
    return found


def let_go(tx: Tx, block_ids: Collection[int], now: float) -> None:
    """These blocks have ended: their hosts are free after their usual spacing."""
    waits = {
        host: spacing
        for hosts in held_by(tx.connection, block_ids).values()
        for host, spacing in hosts.items()
    }
    free_hosts(tx, waits, now)


def free_hosts(tx: Tx, waits: Mapping[str, float], now: float) -> None:
    """Release hosts that are no longer needed: host -> seconds before the next start."""
    if not waits:
        return
    hosts = sorted(waits)
    for chunk in in_chunks(hosts):
        free = sa.update(site_holds).where(site_holds.c.host.in_(chunk))
        tx.execute(free.values(block=None, until=now))
    tx.execute(_NEXT_START, [{"site": host, "at": now + waits[host]} for host in hosts])
