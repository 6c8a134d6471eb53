"""Failed attempts to fetch robots.txt, by run and host. Run by centers, inside a transaction.

While a row counts, the requests of its run wait for the host between two attempts. After enough
attempts the row is marked: the requests are packed in their order, and the agent that gets them
fails them together with the stored failure. A marked row that was not used for some seconds is
void, so that requests that are sent again start with an attempt.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import sqlalchemy as sa

from skep.model.hosts.host import SiteNote
from skep.model.hosts.politeness import Politeness
from skep.store.sql.engine.database import Tx
from skep.store.sql.hosts.rows import in_chunks
from skep.store.sql.schema.hosts import host_probes

#: Seconds for which a run has given up on a host after the last request that failed so.
GIVEN_UP_SECONDS = 10.0
#: Seconds after which a row is void in any case: no request of its run waits any more.
OLD_SECONDS = 7 * 86_400.0
_COLUMNS = ("run", "host", "probes", "at", "failure", "detail", "given_up")


class Probes(NamedTuple):
    """The attempts of a run for a host, and their result."""

    tries: int
    failure: str
    detail: str
    given_up: bool


def probes_of(tx: Tx, run: int, hosts: Collection[str], now: float) -> dict[str, Probes]:
    """host -> attempts of this run; hosts without any are absent. Void rows are deleted."""
    found: dict[str, Probes] = {}
    for chunk in in_chunks(sorted(hosts)):
        query = sa.select(host_probes).where(host_probes.c.run == run)
        for row in tx.execute(query.where(host_probes.c.host.in_(chunk))).all():
            if row.given_up and row.at < now - GIVEN_UP_SECONDS:
                forget_probes(tx, run, row.host)
            else:
                found[row.host] = Probes(row.probes, row.failure, row.detail, bool(row.given_up))
    return found


def note_probe(tx: Tx, run: int, note: SiteNote, politeness: Politeness, now: float) -> Probes:
    """Count one more failed attempt."""
    before = probes_of(tx, run, [note.host], now).get(note.host)
    count = before.tries + 1 if before is not None else 1
    given_up = politeness.enough_probes(count, gone=note.gone)
    forget_probes(tx, run, note.host)
    row = (run, note.host, count, now, note.failure, note.detail, int(given_up))
    tx.dialect.insert_new(tx.connection, host_probes, _COLUMNS, [row])
    tx.execute(sa.delete(host_probes).where(host_probes.c.at < now - OLD_SECONDS))
    return Probes(count, note.failure, note.detail, given_up)


def still_given_up(tx: Tx, run: int, host: str, now: float) -> None:
    """More requests have failed for this reason: the others of the run will fail too."""
    mine = sa.and_(host_probes.c.run == run, host_probes.c.host == host)
    change = sa.update(host_probes).where(mine, host_probes.c.given_up == 1)
    tx.execute(change.values(at=now))


def forget_probes(tx: Tx, run: int, host: str) -> None:
    """Delete the count: the host answers, or counting starts anew."""
    mine = sa.and_(host_probes.c.run == run, host_probes.c.host == host)
    tx.execute(sa.delete(host_probes).where(mine))


def forget_run_probes(tx: Tx, runs: Collection[int]) -> None:
    """A user retries requests: each host starts with one attempt."""
    if runs:
        tx.execute(sa.delete(host_probes).where(host_probes.c.run.in_(sorted(runs))))


def is_given_up(connection: sa.Connection, host: str, now: float) -> bool:
    """Whether any run has given up on a host now."""
    fresh = sa.and_(host_probes.c.given_up == 1, host_probes.c.at >= now - GIVEN_UP_SECONDS)
    query = sa.select(host_probes.c.run).where(host_probes.c.host == host, fresh)
    return connection.execute(query.limit(1)).first() is not None


def forget_host_probes(tx: Tx, host: str) -> None:
    """A user allows the host to be contacted again."""
    tx.execute(sa.delete(host_probes).where(host_probes.c.host == host))
