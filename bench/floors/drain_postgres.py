"""The floor of `drain` on PostgreSQL: the same rows in hand-written SQL, by arrays and COPY.

Arguments: database URL (filled by bench.children.drain), requests.
"""

from __future__ import annotations

import json
import sys
from functools import partial

import psycopg

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

#: One statement: claim, history, bodies. MATERIALIZED makes the planner apply the limit.
CLAIM = f"""
WITH ready AS MATERIALIZED (
    SELECT id FROM blocks WHERE state IN (1, 16) ORDER BY id LIMIT {BLOCKS}
    FOR UPDATE SKIP LOCKED
), taken AS (
    UPDATE blocks SET state = {USING}, token = token + 1, agent = %s, lease_until = %s,
           answer_by = %s
      FROM ready WHERE blocks.id = ready.id RETURNING blocks.id, token, open
), noted AS (
    INSERT INTO block_history (block, state, at, detail)
    SELECT id, {USING}, %s, '{LEASED_DETAIL}' FROM taken
)
SELECT taken.id, taken.token, body, taken.open FROM taken JOIN block_bodies ON block = taken.id
"""
#: One statement: blocks by token, their history, their requests.
SETTLE = f"""
WITH mine AS (
    UPDATE blocks SET state = {SUCCESS}, open = 0, failed = 0
      FROM unnest(%s::bigint[], %s::int[]) AS held (id, token)
     WHERE blocks.id = held.id AND blocks.token = held.token AND agent = %s
       AND blocks.state = {USING}
    RETURNING blocks.id
), noted AS (
    INSERT INTO block_history (block, state, at, detail)
    SELECT id, {SUCCESS}, %s, '{DONE_DETAIL}' FROM mine
)
UPDATE requests SET state = {DONE}
 WHERE id = ANY(%s) AND requests.state = {QUEUED} AND block IN (SELECT id FROM mine)
"""
TALLY = """
INSERT INTO tallies (run, state, n) VALUES (1, %s, %s), (1, %s, %s)
ON CONFLICT (run, state) DO UPDATE SET n = tallies.n + excluded.n
"""
FIGURES = """
INSERT INTO figures (run, name, n) SELECT 1, * FROM unnest(%s::varchar[], %s::bigint[])
ON CONFLICT (run, name) DO UPDATE SET n = figures.n + excluded.n
"""
NAMES = ", ".join(f'"{name}"' for name in ATTEMPT_COLUMNS)
#: Binary COPY was the fastest of four ways that were tested.
COPY = f"COPY attempts ({NAMES}) FROM STDIN (FORMAT BINARY)"
TYPES = (
    "int8", "int8", "int4", "varchar", "float8", "varchar", "int4", "text",
    "int8", "int8", "int8", "varchar", "text", "varchar", "int8", "int8",
)  # fmt: skip


def claim(line: psycopg.Connection, now: float) -> Claimed:
    with line.cursor() as cursor:
        taken = cursor.execute(CLAIM, (AGENT, now + 30.0, now + PATIENCE, now)).fetchall()
        count = sum(still_open for _, _, _, still_open in taken)
        cursor.execute(TALLY, (QUEUED, -count, LEASED, count))
    line.commit()
    return [(block, token, body) for block, token, body, _ in taken]


def settle(line: psycopg.Connection, leases: list[Lease], now: float) -> None:
    numbers = [number for lease in leases for number in lease.requests]
    blocks, tokens = [one.block for one in leases], [one.token for one in leases]
    with line.cursor() as cursor:
        cursor.execute(SETTLE, (blocks, tokens, AGENT, now, numbers))
        check(len(numbers), cursor.rowcount, "requests ended")
        with cursor.copy(COPY) as copy:
            copy.set_types(TYPES)
            for row in attempt_rows(leases, now):
                copy.write_row(row)
        cursor.execute(TALLY, (LEASED, -len(numbers), DONE, len(numbers)))
        names, counts = zip(*figure_rows(len(numbers), now), strict=True)
        cursor.execute(FIGURES, (list(names), list(counts)))
    line.commit()


def count_rows(line: psycopg.Connection, table: str) -> int:
    row = line.execute(f"SELECT count(*) FROM {table}").fetchone()
    return int(row[0]) if row else 0


def measure(url: str, count: int) -> dict[str, float]:
    with psycopg.connect(url) as line:
        watch = Stopwatch()
        done = drain(partial(claim, line), partial(settle, line), watch)
        for table, rows in (
            ("attempts", count),
            ("block_history", 3 * count // 100),
            (f"requests WHERE state = {DONE}", count),
        ):
            check(rows, count_rows(line, table), f"rows in {table}")
    return {"seconds": watch.seconds, "cpu": watch.cpu, "done": done}


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], int(sys.argv[2]))))
