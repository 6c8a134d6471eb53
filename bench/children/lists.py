"""Fills a store for `bench lists`, by direct inserts. Arguments: store URL, requests.

As many runs as a tenth of the requests, half as many jobs, a thousand agents; every fifth request
is dead, in 500 failure groups. The counts and spans that accepting keeps are written too, each
row once: as sums of one transaction they would be a statement of half a million rows.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import msgspec
import sqlalchemy as sa
import uvloop

from skep.model.fleet.agent import Registration, Vitals
from skep.model.jobs.job import Job, bytes_of
from skep.model.run import RunSettings
from skep.model.states import RequestState
from skep.settings import StoreSettings
from skep.store.open_store import open_store
from skep.store.sql.engine.database import ACCEPTED, MINUTE, OF_RUN, Tx
from skep.store.sql.schema.agents import agents
from skep.store.sql.schema.ended_work import faults
from skep.store.sql.schema.jobs import job_labels, jobs
from skep.store.sql.schema.monitoring import failure_groups
from skep.store.sql.schema.people import audit_log
from skep.store.sql.schema.records import alerts
from skep.store.sql.schema.requests import request_spans, requests, tallies
from skep.store.sql.schema.runs import run_labels, runs

AGENTS, GROUPS, FAULTS, HOSTS, BATCH = 1000, 500, 20, 25, 20_000
SECONDS = 86_400.0
CLASSES = ("timeout", "network", "status", "blocked")
STATES = ("finished", "paused", "cancelled", "failed", "finished")
#: Every twentieth of the paused runs is a running one instead.
RUNNING = 20
#: Of ten requests: done, dead, waiting, cancelled.
KINDS = (4, 4, 5, 4, 0, 4, 5, 4, 6, 4)
Row = tuple[Any, ...]


def run_of(number: int, count: int, run_count: int) -> int:
    """A fifth of all requests is in the first run, the others are spread."""
    return 1 if number % 5 == 0 else 1 + number * run_count // (count + 1)


def request_rows(count: int, run_count: int, now: float) -> Iterator[Row]:
    arguments = msgspec.msgpack.encode(("GET", {}, b"", {}))
    for number in range(1, count + 1):
        state = KINDS[number % 10]
        dead, group = state == 5, number // 10 % GROUPS
        fault, host = group % FAULTS + 1, f"h{(group // FAULTS if dead else number % 977)}.example"
        at = now - SECONDS * (count - number) / count
        yield (
            *(number, run_of(number, count, run_count), number.to_bytes(16, "big")),
            *(f"https://{host}/page/{number}", host, number % 7 - 1, arguments, state),
            *(int(dead), 0.0, at, fault if dead else None, at if dead else None),
            CLASSES[fault % len(CLASSES)] if dead else None,
        )


COLUMNS = (
    *("id", "run", "fingerprint", "uri", "host", "priority", "arguments", "state", "failures"),
    *("not_before", "created_at", "fault", "died_at", "failure"),
)


def run_rows(count: int, now: float) -> Iterator[Row]:
    settings = msgspec.msgpack.encode(RunSettings())
    labels = [msgspec.msgpack.encode({"team": f"t{n}"}) for n in range(10)]
    for number in range(1, count + 1):
        at = now - SECONDS * (count - number) / count
        name, job = f"run-{number}", f"job-{number % (count // 2)}"
        runs_now = number % (len(STATES) * RUNNING) == 1
        state = "running" if runs_now else STATES[number % len(STATES)]
        yield number, name, job, state, settings, at, at, labels[number % 10]


def job_rows(count: int, now: float) -> Iterator[Row]:
    for number in range(count):
        name, labels = f"job-{number}", {"team": f"t{number % 10}"}
        job = Job(name, requests=("https://example.com/",), labels=labels)
        yield name, 1, bytes_of(job), int(number % 3 > 0), 0, "bench", now, now


def agent_rows(now: float) -> Iterator[Row]:
    vitals = msgspec.msgpack.encode(Vitals())
    for number in range(AGENTS):
        labels = {"zone": f"z{number % 5}"}
        about = Registration(f"agent-{number}", f"agent-{number}", f"g{number % 7}", labels)
        yield f"agent-{number}", msgspec.msgpack.encode(about), 1, now, now, vitals


async def fill(url: str, count: int) -> dict[str, float]:
    store: Any = open_store(url, StoreSettings())
    await store.open()
    begun, now, run_count = time.perf_counter(), time.time(), count // 10

    async def put(table: sa.Table, columns: Sequence[str], rows: Iterator[Row]) -> None:
        while some := list(islice(rows, BATCH)):
            await store.database.write(
                lambda tx, some=some: tx.dialect.insert_many(tx.connection, table, columns, some)
            )

    run = ("no", "id", "job", "state", "settings", "created_at", "changed_at", "labels")
    await put(runs, run, run_rows(run_count, now))
    labels = ((("team", f"t{n % 10}", n)) for n in range(1, run_count + 1))
    await put(run_labels, ("name", "value", "run"), labels)
    job = ("name", "revision", "definition", "enabled", "deleted", "author", "created_at")
    await put(jobs, (*job, "changed_at"), job_rows(run_count // 2, now))
    marked = (("team", f"t{n % 10}", f"job-{n}") for n in range(run_count // 2))
    await put(job_labels, ("name", "value", "job"), marked)
    agent = ("id", "registration", "enabled", "registered_at", "seen_at", "vitals")
    await put(agents, agent, agent_rows(now))
    words = ((n, CLASSES[n % len(CLASSES)], 0, f"fault {n}") for n in range(1, FAULTS + 1))
    await put(faults, ("id", "failure", "status", "text"), words)
    alert = ("kind", "subject", "detail", "times", "first_at", "last_at")
    await put(alerts, alert, (("bench", f"s{n}", "x", 1, now, now + n) for n in range(1000)))
    await put(requests, COLUMNS, request_rows(count, run_count, now))
    kept = Kept(count, run_count, now)
    await put(tallies, ("run", "state", "n"), kept.tallies())
    await put(request_spans, ("kind", "number", "low", "high"), kept.spans())
    died = ("fault", "host", "died", "gone", "first_at", "last_at", "fresh")
    await put(failure_groups, died, kept.groups())
    changes = ("at", "who", "action", "object", "outcome", "detail", "address", "client")
    more = ("credential", "state_before", "state_after", "times", "center", "size")
    await put(audit_log, (*changes, *more), audit_rows(count // 10, now))
    if store.database.dialect.name == "postgresql":
        await store.database.write(after_copy)
    await store.close()
    return {"seconds": time.perf_counter() - begun, "requests": count}


def audit_rows(count: int, now: float) -> Iterator[Row]:
    for number in range(count):
        at = now - SECONDS * (count - number) / count
        what = (f"u{number % 50}", "start_job", f"job:job-{number % (count // 2)}", "done")
        yield at, *what, "", "", "api", "", "", "", 1, "bench", 200


class Kept:
    """What accepting and settling would have counted."""

    def __init__(self, count: int, run_count: int, now: float) -> None:
        self._counts: Counter[tuple[int, int]] = Counter()
        self._spans: dict[tuple[int, int], tuple[int, int]] = {}
        self._groups: dict[tuple[int, str], tuple[int, float, float]] = {}
        for number in range(1, count + 1):
            run, state = run_of(number, count, run_count), KINDS[number % 10]
            self._counts[run, state] += 1
            self._counts[run, ACCEPTED] += 1
            at = now - SECONDS * (count - number) / count
            for key in ((OF_RUN, run), (OF_RUN + 1, int(at // MINUTE))):
                self._spans[key] = self._spans.get(key, (number, 0))[0], number
            if state == RequestState.DEAD:
                self._died(number, at)

    def _died(self, number: int, at: float) -> None:
        group = number // 10 % GROUPS
        key = group % FAULTS + 1, f"h{group // FAULTS}.example"
        n, first, _ = self._groups.get(key, (0, at, at))
        self._groups[key] = n + 1, first, at

    def tallies(self) -> Iterator[Row]:
        return ((run, state, n) for (run, state), n in self._counts.items())

    def spans(self) -> Iterator[Row]:
        return ((*key, *ids) for key, ids in self._spans.items())

    def groups(self) -> Iterator[Row]:
        for (fault, host), (n, first, last) in self._groups.items():
            yield fault, host, n, 0, first, last, 0


def after_copy(tx: Tx) -> None:
    """Numbers go on after those that were inserted, and planners know the tables."""
    for table, column in (("requests", "id"), ("runs", "no")):
        tx.sql(
            f"SELECT setval(pg_get_serial_sequence('{table}', '{column}'),"
            f" (SELECT MAX({column}) FROM {table}))"
        )
    tx.sql("ANALYZE")


if __name__ == "__main__":
    print(json.dumps(uvloop.run(fill(sys.argv[1], int(sys.argv[2])))))
