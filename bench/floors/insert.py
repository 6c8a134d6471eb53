"""The floor of `enqueue`: rows of the same columns, width and keys by plain executemany.

Everything is prepared before the measurement, which ends when the commit is on disk.
Arguments: database file, rows.
"""

from __future__ import annotations

import json
import sqlite3
import sys
import time
from hashlib import blake2b
from urllib.parse import urlsplit

from bench.enqueue import urls

TABLE = """
CREATE TABLE requests (
    id INTEGER PRIMARY KEY AUTOINCREMENT, run INTEGER NOT NULL, fingerprint BLOB NOT NULL,
    uri TEXT NOT NULL, host TEXT NOT NULL, priority INTEGER NOT NULL, arguments BLOB NOT NULL,
    state INTEGER NOT NULL, failures INTEGER NOT NULL, block INTEGER, not_before REAL NOT NULL,
    expires_at REAL, created_at REAL NOT NULL, UNIQUE (run, fingerprint));
CREATE INDEX waiting ON requests (state, run, priority, id) WHERE state = 0;
"""
INSERT = (
    "INSERT INTO requests (run, fingerprint, uri, host, priority, arguments, state, failures,"
    " not_before, expires_at, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
    " ON CONFLICT DO NOTHING"
)


def fingerprint(uri: str) -> bytes:
    return blake2b(uri.encode(), digest_size=16).digest()


def rows(count: int) -> list[tuple[object, ...]]:
    return [
        (1, fingerprint(uri), uri, urlsplit(uri).hostname, 5, b"", 0, 0, 0.0, None, 1.0)
        for uri in urls(count)
    ]


def measure(path: str, count: int) -> dict[str, float]:
    database = sqlite3.connect(path, isolation_level=None)
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "cache_size=-32000"):
        database.execute(f"PRAGMA {pragma}")
    database.executescript(TABLE)
    made = rows(count)
    begun = time.perf_counter()
    database.execute("BEGIN IMMEDIATE")
    database.executemany(INSERT, made)
    database.execute("COMMIT")
    seconds = time.perf_counter() - begun
    found = database.execute("SELECT count(*) FROM requests").fetchone()[0]
    database.close()
    return {"seconds": seconds, "rows": found}


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], int(sys.argv[2]))))
