"""Wakes requests that wait for free hosts. Run by centers only, inside a transaction.

A free host is checked until no request waits for it: about one window of its parked requests is
woken, and the next one when these have not been packed after a while.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any

import sqlalchemy as sa

from skep.model.hosts.politeness import HostPoliteness, Politeness
from skep.model.run import RunSettings
from skep.model.states import RequestState, RunState
from skep.store.sql.blocks.reclaim import SPLIT_AFTER
from skep.store.sql.blocks.rows import members_of
from skep.store.sql.engine.database import Tx
from skep.store.sql.engine.dialect import id_list
from skep.store.sql.engine.predicates import CLAIMABLE_BLOCKS, in_list, stored
from skep.store.sql.hosts.robots_probes import is_given_up
from skep.store.sql.hosts.rows import hosts_of
from skep.store.sql.schema.blocks import blocks
from skep.store.sql.schema.hosts import site_holds
from skep.store.sql.schema.requests import requests
from skep.store.sql.schema.runs import runs

#: Maximum hosts of one call.
HOSTS_AT_ONCE = 200
#: Seconds after which a host is checked again when its woken requests were not packed.
AGAIN_AFTER = 5.0
#: Parked requests of runs that are not running, skipped at a time.
REST_CHUNK = 500
_USUAL = RunSettings()


def wake_hosts(tx: Tx, now: float, politeness: Politeness, limit: int) -> int:
    """Parked requests of free hosts become WAITING; returns how many."""
    hosts = _free_hosts(tx, now)
    if not hosts:
        return 0
    known = hosts_of(tx.connection, hosts)
    singles = _single_blocks(tx, hosts)
    woken = 0
    for host in hosts:
        site = known.get(host) or HostPoliteness(host)
        if site.cooling_until > now:
            _look_again(tx, host, site.cooling_until)
        elif host in singles:
            _give(tx, host, singles[host], now)
        elif woken < limit:
            woken += _wake(tx, site, now, politeness, limit - woken)
    return woken


def _free_hosts(tx: Tx, now: float) -> list[str]:
    free = sa.and_(site_holds.c.block.is_(None), site_holds.c.until <= now)
    query = sa.select(site_holds.c.host).where(free).order_by(site_holds.c.until)
    query = query.limit(HOSTS_AT_ONCE).with_for_update(skip_locked=True)
    return sorted(tx.execute(query).scalars())


def _single_blocks(tx: Tx, hosts: Collection[str]) -> dict[str, int]:
    """host -> the first block that was split off for one of its requests and waits for it."""
    query = (
        sa.select(blocks.c.id)
        .join(runs, runs.c.no == blocks.c.run)
        .where(CLAIMABLE_BLOCKS, blocks.c.losses >= SPLIT_AFTER, blocks.c.size == 1)
        .where(runs.c.state == str(RunState.RUNNING))
        .order_by(blocks.c.id)
    )
    waiting = list(tx.execute(query).scalars())
    if not waiting:
        return {}
    of = {ids[0]: block for block, ids in members_of(tx.connection, waiting).items()}
    rows = tx.sql(f"SELECT id, host FROM requests WHERE id IN ({id_list(of)}) ORDER BY id DESC")  # noqa: S608
    return {row.host: of[row.id] for row in rows if row.host in hosts}


def _give(tx: Tx, host: str, block: int, now: float) -> None:
    mine = sa.update(site_holds).where(site_holds.c.host == host)
    tx.execute(mine.values(block=block, until=now + AGAIN_AFTER))


def _look_again(tx: Tx, host: str, when: float) -> None:
    tx.execute(sa.update(site_holds).where(site_holds.c.host == host).values(until=when))


def _wake(tx: Tx, site: HostPoliteness, now: float, politeness: Politeness, limit: int) -> int:
    """Wake about a window of a host's parked requests; delete its hold when there are none."""
    pace = politeness.pace(site, _USUAL, now)
    wanted = limit if pace is None else min(limit, politeness.window(pace, _USUAL.block_size))
    if is_given_up(tx.connection, site.host, now):
        wanted = limit
    useful, woken, size = 0, 0, wanted
    # Woken requests of runs that are not running are not packed: they do not count.
    while useful < wanted and woken < limit:
        found = parked_of(tx, site.host, min(size, limit - woken))
        useful += _let_wait(tx, found)
        woken += len(found)
        if len(found) < size:
            break
        size = REST_CHUNK
    if not woken:
        tx.execute(sa.delete(site_holds).where(site_holds.c.host == site.host))
        return 0
    _look_again(tx, site.host, now + AGAIN_AFTER if pace is not None and useful else now)
    return woken


def parked_of(tx: Tx, host: str, limit: int) -> list[Any]:
    """The next requests that wait for a host: best priority first, then in order."""
    query = (
        sa.select(requests.c.id, requests.c.run)
        .where(stored(RequestState.DELAYED), requests.c.host == host, requests.c.failures == 0)
        .order_by(requests.c.priority, requests.c.not_before)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    return list(tx.execute(query))


def _let_wait(tx: Tx, found: list[Any]) -> int:
    """They become WAITING; returns how many of them belong to running runs."""
    if not found:
        return 0
    ids = id_list(row.id for row in found)
    tx.sql(f"UPDATE requests SET state = {RequestState.WAITING:d} WHERE id IN ({ids})")  # noqa: S608
    of_runs = Counter(row.run for row in found)
    for run, count in of_runs.items():
        tx.move(run, RequestState.DELAYED, RequestState.WAITING, count)
    going = sa.select(runs.c.no).where(
        in_list(runs.c.no, of_runs), runs.c.state == str(RunState.RUNNING)
    )
    return sum(of_runs[run] for run in tx.execute(going).scalars())
