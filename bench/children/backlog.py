"""A large backlog: fills a database with it, or measures one. Arguments: `fill` or `measure`,
store URL, requests.

It fills the tables of `accept` directly with SQL, with the same columns and, where the database
supports it, without indexes, because accepting ten million requests takes minutes. The counts of
the ledger are written with them, and audited by reading every row afterwards.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import sqlalchemy as sa
import uvloop

from bench.children.drain import Untouched
from bench.figures import check
from skep.bus.registry import open_bus
from skep.center.foundation import Foundation
from skep.center.services import Services, build
from skep.lanes.dispatch import SWEEP_LIMIT, lane_limits
from skep.model.run import NewRun
from skep.runtime.clock import SystemClock
from skep.settings import load
from skep.store.open_store import open_store
from skep.store.sql.store import SqlStore

RUNS, HOSTS, CHUNK = 40, 97, 500_000
#: The number of requests that fit into all lanes.
DISPATCH = 7_000
TIMES = 7
FAR = 4_000_000_000.0
COLUMNS = (
    "run, fingerprint, uri, host, priority, arguments, state, failures, not_before,"
    " expires_at, created_at"
)
#: Every 20th request failed once and is delayed, every 10th has an expiry.
VALUES = f"""
1 + n % {RUNS}, {{digest}}, 'http://site' || n % {HOSTS} || '.localhost/catalogue/page/' || n,
'site' || n % {HOSTS} || '.localhost', (n % {RUNS}) % 7 - 1, {{empty}},
CASE WHEN n % 20 = 0 THEN 3 ELSE 0 END, CASE WHEN n % 20 = 0 THEN 1 ELSE 0 END,
CASE WHEN n % 20 = 0 THEN {FAR} ELSE 0 END, CASE WHEN n % 10 = 1 THEN {FAR} END, {{now}}
"""
SERIES = (
    "(WITH RECURSIVE s (n) AS (SELECT {} UNION ALL SELECT n + 1 FROM s WHERE n < {})"
    " SELECT n FROM s)"
)
TALLIES = """
INSERT INTO tallies (run, state, n) SELECT run, state, count(*) FROM requests GROUP BY run, state
UNION ALL SELECT run, -1, count(*) FROM requests GROUP BY run
"""


def assemble(url: str) -> Services:
    settings = load()
    store = open_store(url, settings.store)
    bus = open_bus("memory://", lane_limits(settings.lanes))
    return build(Foundation("bench", settings, store, bus, Untouched(), SystemClock(), Random(1)))


def fill_sqlite(line: sa.Connection, count: int) -> None:
    """In chunks, with a cache that fits the index of fingerprints."""
    for pragma in ("synchronous=OFF", "cache_size=-2000000", "wal_autocheckpoint=100000"):
        line.exec_driver_sql(f"PRAGMA {pragma}")
    values = VALUES.format(digest="randomblob(16)", empty="x''", now=time.time())
    for start in range(0, count, CHUNK):
        series = SERIES.format(start, min(start + CHUNK, count) - 1)
        line.exec_driver_sql("BEGIN IMMEDIATE")
        line.exec_driver_sql(f"INSERT INTO requests ({COLUMNS}) SELECT {values} FROM {series}")
        line.exec_driver_sql("COMMIT")
    line.exec_driver_sql("BEGIN IMMEDIATE")
    line.exec_driver_sql(TALLIES)
    line.exec_driver_sql("COMMIT")
    line.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")


def fill_postgres(line: sa.Connection, count: int) -> None:
    """Indexes are created at the end, as for a restored dump."""
    indexes = line.exec_driver_sql(
        "SELECT indexname, indexdef FROM pg_indexes WHERE tablename = 'requests'"
        " AND indexdef NOT LIKE 'CREATE UNIQUE%%'"
    ).all()
    for name, _ in indexes:
        line.exec_driver_sql(f"DROP INDEX {name}")
    line.exec_driver_sql("ALTER TABLE requests DROP CONSTRAINT requests_once")
    digest = "decode(md5(n::text), 'hex')"
    values = VALUES.format(digest=digest, empty="''::bytea", now=time.time())
    values = values.replace("%", "%%")  # the driver takes a single one as a parameter
    series = f"generate_series(0, {count - 1}) AS s (n)"
    line.exec_driver_sql(f"INSERT INTO requests ({COLUMNS}) SELECT {values} FROM {series}")
    line.exec_driver_sql(
        "ALTER TABLE requests ADD CONSTRAINT requests_once UNIQUE (run, fingerprint)"
    )
    for _, definition in indexes:
        line.exec_driver_sql(definition.replace("%", "%%"))
    line.exec_driver_sql(TALLIES)
    line.commit()
    # The server does this by itself some minutes after such a load.
    line.execution_options(isolation_level="AUTOCOMMIT").exec_driver_sql("VACUUM ANALYZE requests")


async def fill(services: Services, count: int) -> dict[str, Any]:
    for number in range(RUNS):
        await services.intake.open_run(f"run-{number}", NewRun(job=f"job-{number}"))
    begun = time.perf_counter()
    assert isinstance(services.store, SqlStore)
    database = services.store.database
    act = fill_sqlite if database.dialect.name == "sqlite" else fill_postgres
    with database.engine.connect() as line:
        act(line, count)
    seconds = time.perf_counter() - begun
    audit = await services.store.ledgers.audit()
    check(await services.store.ledgers.read(), audit, "the two ledgers")
    check((count, 0), (audit.accepted, audit.unaccounted), "accepted and unaccounted")
    return {"seconds": seconds, "waiting": audit.waiting}


async def seconds_of(call: Callable[[], Awaitable[Any]]) -> float:
    begun = time.perf_counter()
    await call()
    return time.perf_counter() - begun


async def dispatch(services: Services) -> float:
    """Fill the empty lanes, including sweeps and log."""
    await services.bus.lanes.clear()
    begun = time.perf_counter()
    moved = await services.dispatcher.dispatch()
    seconds = time.perf_counter() - begun
    check(DISPATCH, moved, "requests in one dispatch")
    return seconds


async def measure(services: Services, _count: int) -> dict[str, Any]:
    store, now = services.store, time.time()
    calls: dict[str, Callable[[], Awaitable[Any]]] = {
        "backlog": store.requests.backlog,
        "wake": lambda: store.requests.wake(now, SWEEP_LIMIT),
        "wake hosts": lambda: store.hosts.wake(now, services.politeness, SWEEP_LIMIT),
        "expire": lambda: store.requests.expire(now, SWEEP_LIMIT),
        "ledger of a run": lambda: store.ledgers.read("run-7"),
        "figures of a run": lambda: store.figures.read("run-7", now),
        "ledger of all": store.ledgers.read,
    }
    found: dict[str, Any] = {"dispatch": [await dispatch(services) for _ in range(TIMES)]}
    for name, call in calls.items():
        found[name] = [await seconds_of(call) for _ in range(TIMES)]
    return found


async def main(act: str, url: str, count: int) -> dict[str, Any]:
    services = assemble(url)
    await services.store.open()
    try:
        return await {"fill": fill, "measure": measure}[act](services, count)
    finally:
        # Else its threads would keep the process alive after an error.
        await services.store.close()


if __name__ == "__main__":
    print(json.dumps(uvloop.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))))
