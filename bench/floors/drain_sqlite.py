"""The floor of `drain` on SQLite: the same rows in hand-written SQL, 20 blocks per transaction.

Arguments: database file (filled by bench.children.drain), requests.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from functools import partial

from bench.figures import check
from bench.floors.drain_rows import (
    AGENT,
    ATTEMPT_COLUMNS,
    BLOCKS,
    DONE,
    DONE_DETAIL,
    LEASED,
    LEASED_DETAIL,
    PATIENCE,
    QUEUED,
    SUCCESS,
    USING,
    Claimed,
    Lease,
    attempt_rows,
    drain,
    figure_rows,
)
from bench.stopwatch import Stopwatch

PRAGMAS = (
    "journal_mode=WAL",
    "synchronous=FULL",
    "wal_autocheckpoint=4000",
    "cache_size=-32000",
    "temp_store=MEMORY",
)
CLAIM = f"""
UPDATE blocks SET state = {USING}, token = token + 1, agent = ?, lease_until = ?, answer_by = ?
 WHERE id IN (SELECT id FROM blocks WHERE state IN (1, 16) ORDER BY id LIMIT {BLOCKS})
RETURNING id, token
"""
HISTORY = "INSERT INTO block_history (block, state, at, detail) VALUES (?, ?, ?, ?)"
TALLY = (
    "INSERT INTO tallies (run, state, n) VALUES (1, ?, ?)"
    " ON CONFLICT (run, state) DO UPDATE SET n = n + excluded.n"
)
FIGURE = (
    "INSERT INTO figures (run, name, n) VALUES (1, ?, ?)"
    " ON CONFLICT (run, name) DO UPDATE SET n = n + excluded.n"
)
NAMES = ", ".join(f'"{name}"' for name in ATTEMPT_COLUMNS)
ATTEMPT = f"INSERT INTO attempts ({NAMES}) VALUES ({', '.join('?' * len(ATTEMPT_COLUMNS))})"
END_BLOCK = (
    f"UPDATE blocks SET state = {SUCCESS}, open = 0, failed = 0"
    f" WHERE id = ? AND token = ? AND agent = ? AND state = {USING}"
)


def claim(database: sqlite3.Connection, now: float) -> Claimed:
    database.execute("BEGIN IMMEDIATE")
    tokens = dict(database.execute(CLAIM, (AGENT, now + 30.0, now + PATIENCE)).fetchall())
    marks = ",".join(map(str, tokens))
    bodies = database.execute(
        "SELECT block, body, open FROM block_bodies JOIN blocks ON blocks.id = block"
        f" WHERE block IN ({marks})"
    ).fetchall()
    database.executemany(HISTORY, [(block, USING, now, LEASED_DETAIL) for block in tokens])
    count = sum(still_open for _, _, still_open in bodies)
    database.executemany(TALLY, [(QUEUED, -count), (LEASED, count)])
    database.execute("COMMIT")
    return [(block, tokens[block], body) for block, body, _ in bodies]


def settle(database: sqlite3.Connection, leases: list[Lease], now: float) -> None:
    numbers = [number for lease in leases for number in lease.requests]
    database.execute("BEGIN IMMEDIATE")
    ended = database.executemany(END_BLOCK, [(one.block, one.token, AGENT) for one in leases])
    check(len(leases), ended.rowcount, "blocks ended")
    changed = database.execute(
        f"UPDATE requests SET state = {DONE}"
        f" WHERE id IN ({','.join(map(str, numbers))}) AND state = {QUEUED}"
    )
    check(len(numbers), changed.rowcount, "requests ended")
    database.executemany(ATTEMPT, attempt_rows(leases, now))
    database.executemany(HISTORY, [(one.block, SUCCESS, now, DONE_DETAIL) for one in leases])
    database.executemany(TALLY, [(LEASED, -len(numbers)), (DONE, len(numbers))])
    database.executemany(FIGURE, figure_rows(len(numbers), now))
    database.execute("COMMIT")


def measure(path: str, count: int) -> dict[str, float]:
    database = sqlite3.connect(path, isolation_level=None)
    for pragma in PRAGMAS:
        database.execute(f"PRAGMA {pragma}")
    watch = Stopwatch()
    done = drain(partial(claim, database), partial(settle, database), watch)
    for table, rows in (("attempts", count), ("block_history", 3 * count // 100)):
        found = database.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
        check(rows, found, f"rows in {table}")
    ended = database.execute(f"SELECT count(*) FROM requests WHERE state = {DONE}").fetchone()[0]
    check(count, ended, "requests that are done")
    database.close()
    return {"seconds": watch.seconds, "cpu": watch.cpu, "done": done}


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], int(sys.argv[2]))))
