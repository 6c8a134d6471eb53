"""Dead requests in a store, many at once, without agents that fail them. For tests and benches.

The rows are those that a report of failures leaves: a fingerprint, a time of death, counts in the
ledger. No attempts are stored.
"""

from __future__ import annotations

from hashlib import blake2b

import sqlalchemy as sa

from skep.model.failures.failure_fingerprint import FailureFingerprint, failure_fingerprint
from skep.model.states import RequestState
from skep.store.ports.requests import RequestRow
from skep.store.sql.engine.database import Tx
from skep.store.sql.requests.requests import accept_rows
from skep.store.sql.runs.runs import hold_run
from skep.store.sql.schema.ended_work import faults
from skep.store.sql.schema.requests import requests
from skep.store.sql.store import SqlStore

BATCH = 5000


async def add_dead(store: SqlStore, run: str, count: int, now: float, groups: int = 10) -> None:
    """To a run that exists and is running; the requests are in that many failure groups."""
    fingerprints = [
        failure_fingerprint("network", 0, f"refused by rule {'x' * n}") for n in range(groups)
    ]

    def work(start: int, tx: Tx) -> None:
        held = hold_run(tx, run)
        rows = [_row(run, number) for number in range(start, min(start + BATCH, count))]
        accept_rows(tx, held, rows, now)
        _kill(tx, held.no, fingerprints, now, len(rows))

    for start in range(0, count, BATCH):
        await store.database.write(lambda tx, start=start: work(start, tx))  # type: ignore[misc] # called at once


def _row(run: str, number: int) -> RequestRow:
    uri = f"http://host{number % 50}.test/{run}/{number}"
    digest = blake2b(uri.encode(), digest_size=16).digest()
    return RequestRow(digest, uri, f"host{number % 50}.test", 5, b"")


def _kill(tx: Tx, run: int, fingerprints: list[FailureFingerprint], now: float, count: int) -> None:
    words = sorted((one.id, one.failure, one.status, one.text) for one in fingerprints)
    tx.dialect.insert_new(tx.connection, faults, ("id", "failure", "status", "text"), words)
    waiting = sa.and_(requests.c.run == run, requests.c.state == int(RequestState.WAITING))
    for number, one in enumerate(fingerprints):
        part = sa.and_(waiting, requests.c.id % len(fingerprints) == number)
        died: dict[str, object] = {"failures": 1, "fault": one.id, "failure": one.failure}
        died |= {"state": int(RequestState.DEAD), "died_at": now}
        tx.execute(sa.update(requests).where(part).values(**died))
    tx.move(run, RequestState.WAITING, RequestState.DEAD, count)
