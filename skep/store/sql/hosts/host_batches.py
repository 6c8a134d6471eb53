"""Selects the requests of rate-limited hosts that may go into a block now. Centers only.

A host is in one open block at a time, with a window of its requests. Other requests, and those
for hosts that are held or paused, are *parked*: delayed without a failure, so that a slow host
never blocks the others. A parked request is woken when its host is free, and at its own time in
any case.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import sqlalchemy as sa

from skep.model.hosts.host import FAILING, ROBOTS, Pace
from skep.model.hosts.politeness import HostPoliteness, Politeness
from skep.model.states import RequestState
from skep.store.ports.requests import PackPlan
from skep.store.sql.engine.database import Tx
from skep.store.sql.engine.dialect import id_list
from skep.store.sql.engine.predicates import stored
from skep.store.sql.hosts.holds import Claim, claim, watch
from skep.store.sql.hosts.robots_probes import Probes, probes_of
from skep.store.sql.hosts.rows import hosts_of, in_chunks, make_hosts
from skep.store.sql.runs.runs import HeldRun
from skep.store.sql.schema.hosts import sites
from skep.store.sql.schema.requests import requests

#: Maximum total bytes of the requests of a block.
BLOCK_BYTES = 2 * 2**20
#: Maximum and minimum seconds for which a request is parked.
PARKED_MOST, PARKED_LEAST = 3600.0, 1.0
#: The least for one that is parked again because another block still holds its host.
PARKED_AGAIN = 15.0
#: Rows of one statement; each row costs a comparison with every other one.
PARK_CHUNK = 250
#: Schemes of the built-in downloaders; only a rule limits the hosts of others.
_FETCHED = ("http://", "https://")


class HostBatch(NamedTuple):
    """Requests for one block, and the hosts that were claimed for it."""

    rows: list[Any]
    hosts: list[str]


class HostBatches(NamedTuple):
    """The rows of a plan, by how they are packed."""

    #: Of hosts without a rate limit: packed in their order.
    free: list[Any]
    tables: list[HostBatch]
    parked: int


def take_host_batches(
    tx: Tx, run: HeldRun, plan: PackPlan, rows: list[Any], now: float, politeness: Politeness
) -> HostBatches:
    """Claim hosts, choose their requests, park the others."""
    hosts = {row.host for row in rows}
    known = hosts_of(tx.connection, hosts)
    paces = _paces(run, rows, known, now, politeness)
    if not paces:
        return HostBatches(rows, [], 0)
    free: list[Any] = []
    queues: dict[str, list[Any]] = {}
    for row in rows:
        (queues.setdefault(row.host, []) if row.host in paces else free).append(row)
    probes = probes_of(tx, run.no, paces, now)
    cooling = {
        host: site.cooling_until
        for host, site in known.items()
        if host in paces and site.cooling_until > now and not _first_try(site, probes)
    }
    make_hosts(tx.connection, tx.dialect, paces.keys() - known.keys())
    watch(tx, cooling)
    chosen = {
        host: _first(queue, _window(politeness, paces[host], probes.get(host), plan.block_size))
        for host, queue in queues.items()
        if host not in cooling
    }
    claims = {host: _claim_of(paces[host], len(picked), now) for host, picked in chosen.items()}
    taken = claim(tx, claims.values())
    given = {host: picked for host, picked in chosen.items() if host not in taken}
    until = {**{host: one.until for host, one in claims.items()}, **taken, **cooling}
    left = {host: queue[len(given.get(host, ())) :] for host, queue in queues.items()}
    # The requests of a paused host all wait for the same moment.
    behind = [host for host, queue in left.items() if queue and host not in cooling]
    tails = _tails(tx, behind, plan.priority)
    waits = {host: _Wait(until[host], tails.get(host, 0.0), host in taken) for host in left}
    parked = [
        place for host in left for place in _places(left[host], waits[host], paces[host], now)
    ]
    park(tx, parked)
    tx.move(run.no, RequestState.WAITING, RequestState.DELAYED, len(parked))
    return HostBatches(free, list(_tables(given, plan.block_size)), len(parked))


def _paces(
    run: HeldRun,
    rows: list[Any],
    known: Mapping[str, HostPoliteness],
    now: float,
    politeness: Politeness,
) -> dict[str, Pace]:
    """How the hosts that have a limit are treated."""
    rules = run.rules
    fetched = {row.host for row in rows if row.uri.startswith(_FETCHED)}
    asked = (
        politeness.pace(
            known.get(host) or HostPoliteness(host), rules, now, own=host not in fetched
        )
        for host in {row.host for row in rows}
    )
    return {pace.host: pace for pace in asked if pace is not None}


def _first_try(site: HostPoliteness, probes: Mapping[str, Probes]) -> bool:
    """A run that has not tried the host, or its robots.txt, does not wait for the attempts of
    other runs."""
    return site.reason.startswith((ROBOTS, f"{FAILING}:")) and site.host not in probes


def _window(politeness: Politeness, pace: Pace, probes: Probes | None, size: int) -> int:
    """Requests that fail without being sent need no spacing."""
    if probes is not None and probes.given_up:
        return size
    return politeness.window(pace, size)


def _first(queue: list[Any], window: int) -> list[Any]:
    """The first rows of a host, few and small enough for one block; at least one."""
    picked: list[Any] = []
    total = 0
    for row in queue[:window]:
        total += row.bytes
        if picked and total > BLOCK_BYTES:
            break
        picked.append(row)
    return picked


def _claim_of(pace: Pace, count: int, now: float) -> Claim:
    return Claim(pace.host, now + pace.wait + count * pace.spacing, pace.spacing)


class _Wait(NamedTuple):
    """What requests of a host wait for."""

    #: When the host should be free.
    until: float
    #: The time of the last request that is parked for it already.
    tail: float
    #: Another block holds it: its end wakes them.
    held: bool


def _tails(tx: Tx, hosts: Collection[str], priority: int) -> dict[str, float]:
    """host -> the last time for which a request of this priority is parked."""
    last = (
        sa.select(requests.c.not_before)
        .where(stored(RequestState.DELAYED), requests.c.host == sites.c.host)
        .where(requests.c.priority == priority)
        .order_by(requests.c.not_before.desc())
        .limit(1)
        .scalar_subquery()
    )
    found: dict[str, float] = {}
    for chunk in in_chunks(sorted(hosts)):
        query = sa.select(sites.c.host, last.label("at")).where(sites.c.host.in_(chunk))
        found |= {row.host: row.at for row in tx.execute(query) if row.at is not None}
    return found


def _places(rows: list[Any], wait: _Wait, pace: Pace, now: float) -> Iterator[tuple[int, float]]:
    """(id, when) for rows that wait for a hold: one after the other, at the host's rate.

    A new request comes after those that are parked already: a time that many of them share would
    wake them all while the host is held, to be parked again. One whose time has come while another
    block holds the host is woken by the end of that block, and need not be checked every second.
    """
    start, end = max(wait.until, now + PARKED_LEAST), now + PARKED_MOST
    again = max(wait.until, now + PARKED_AGAIN) if wait.held else start
    fresh = max(start, min(wait.tail, end) + pace.spacing) if wait.tail > now else start
    for place, row in enumerate(rows):
        # A request that failed before is woken only at its own time: it does not queue up.
        first = again if row.not_before else fresh
        yield row.id, min(start if row.failures else first + place * pace.spacing, end)


def park(tx: Tx, places: list[tuple[int, float]]) -> None:
    """Delay waiting requests until a time, without a failure: (id, when)."""
    for start in range(0, len(places), PARK_CHUNK):
        chunk = places[start : start + PARK_CHUNK]
        times = " ".join(f"WHEN {number:d} THEN {float(when)!r}" for number, when in chunk)
        tx.sql(
            f"UPDATE requests SET state = {RequestState.DELAYED:d},"  # noqa: S608 - numbers
            f" not_before = CASE id {times} END"
            f" WHERE id IN ({id_list(number for number, _ in chunk)})"
        )


def _tables(given: Mapping[str, list[Any]], size: int) -> Iterator[HostBatch]:
    """Blocks with several hosts each; all rows of a host are in the same block."""
    table = HostBatch([], [])
    for host, picked in given.items():
        if table.rows and not _fits(table.rows, picked, size):
            yield table
            table = HostBatch([], [])
        table.rows.extend(picked)
        table.hosts.append(host)
    if table.rows:
        yield table


def _fits(rows: Iterable[Any], more: Iterable[Any], size: int) -> bool:
    together = [*rows, *more]
    return len(together) <= size and sum(row.bytes for row in together) <= BLOCK_BYTES
