"""`lists`: how soon does a list answer, by every field that people filter by?

A million requests (200,000 dead in 500 groups), 50,000 jobs, 100,000 runs and 1,000 agents, on
SQLite and on PostgreSQL, behind the API of a real `skep center` that accepts 1,000 requests a
second meanwhile. Each list is asked for its first page and for a page deep in it, and each of
these is called many times, first alone and then while requests are accepted; the figure is the
95th percentile of the slowest.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import uvloop

from bench.centers import CenterDoor, running_center
from bench.children.deep_pages import deep_rows, moved
from bench.figures import Result, check, neat
from bench.options import Options
from bench.processes import answer, versions
from skep.testing.servers import postgres

BAR = 100.0
PATIENCE = 900.0
#: Calls of each page; rows of a page; the number of the deep page.
CALLS, LIMIT, THOUSANDTH = 20, 50, 1000
RATE, BATCH = 1000, 100
#: List -> filters.
ASKED: dict[str, tuple[str, ...]] = {
    "/api/v1/requests": (
        *("", "run:run-1", "job:job-1", "run:run-500", "state:dead", "state:done", "state:waiting"),
        *(
            "state:dead,cancelled",
            "host:h7.example",
            "host:*7.example",
            "state:dead host:h3.example",
        ),
        *("error:timeout", "group:1@h0.example", "group:1", "since:2h", "until:12h"),
        *("state:dead since:2h", "run:run-1 state:dead", "label:team=t1", "nosuchtext"),
    ),
    "/api/v1/runs": (
        *("", "job:job-7", "job:job-7*", "state:failed", "state:open", "label:team=t1"),
        *("label:team=t1 state:failed", "since:2h", "until:12h", "id:run-99*", "nosuchtext"),
    ),
    "/api/v1/jobs": ("", "name:job-49*", "state:enabled", "label:team=t1", "customer:nosuch"),
    "/api/v1/agents": ("", "state:alive", "group:g3", "label:zone=z1", "state:dead label:zone=z1"),
    "/api/v1/failures": ("", "error:timeout", "host:h3.example", "since:2h"),
    "/api/v1/failure-groups": ("", "state:open"),
    "/api/v1/audit": ("", "user:u7", "object:job:job-7", "since:2h", "user:u7 since:2h"),
    "/api/v1/operations": ("",),
    "/api/v1/users": ("",),
    "/api/v1/sessions": ("",),
    "/api/v1/alerts": ("", "kind:bench", "subject:s999"),
    "/api/v1/sites": ("", "host:*.example"),
    "/api/v1/tokens": ("", "role:admin"),
    "/api/v1/dispatches": ("", "kind:alert", "since:1h"),
    "/api/v1/schedules": ("",),
    "/api/v1/deliveries": ("",),
    "/api/v1/notices": ("",),
    "/api/v1/jobs/job-1/fires": ("",),
    "/api/v1/ledger": ("",),
    "/api/v1/storage": ("",),
    "/metrics": ("",),
}
#: Lists whose rows are found by the store, with the resource of their filters.
RESOURCES = {
    "/api/v1/requests": "requests",
    "/api/v1/runs": "runs",
    "/api/v1/jobs": "jobs",
    "/api/v1/audit": "audit",
}
#: Not lists, but sums over all runs.
PLAIN = {"/api/v1/ledger", "/api/v1/storage", "/metrics"}


def fill(url: str, count: int) -> float:
    found = answer([sys.executable, "-m", "bench.children.lists", url, str(count)], PATIENCE)
    check(count, found["requests"], "requests in the store")
    return float(found["seconds"])


@contextmanager
def accepting(center: CenterDoor) -> Iterator[list[int]]:
    """Hands in 1,000 requests a second until the block ends; yields how many were accepted."""
    center.call("PUT", "/api/v1/runs/new", {})
    over, accepted = threading.Event(), [0]

    def work() -> None:
        begun, number = time.perf_counter(), 0
        while not over.is_set():
            uris = [f"https://new.example/{number * BATCH + n}" for n in range(BATCH)]
            accepted[0] += center.call("POST", "/requestqueue/new", uris)["new"]
            number += 1
            over.wait(max(0.0, begun + number * BATCH / RATE - time.perf_counter()))

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield accepted
    finally:
        over.set()
        thread.join()


def path_of(path: str, text: str, page: str = "") -> str:
    if path in PLAIN:
        return path
    key = f"&page={page}" if page else ""
    return f"{path}?limit={LIMIT}&filter={quote(text)}{key}"


def pages_of(center: CenterDoor, deep: Mapping[tuple[str, str], tuple[Any, ...]]) -> dict[str, str]:
    """Name -> path, of the first page and of a deep one of every list and filter."""
    pages = {}
    for path, texts in ASKED.items():
        for text in texts:
            pages[f"{path} {text}"] = first = path_of(path, text)
            key = deep.get((RESOURCES.get(path, ""), text))
            following = None if path in PLAIN else center.call("GET", first)["next_page"]
            if following and key is None and path not in RESOURCES:
                pages[f"{path} {text} (second)"] = path_of(path, text, following)
            elif following and key is not None:
                pages[f"{path} {text} (deep)"] = path_of(path, text, moved(following, key))
    return pages


def deep_keys(url: str) -> dict[tuple[str, str], tuple[Any, ...]]:
    asked = [(RESOURCES[path], text) for path in RESOURCES for text in ASKED[path]]
    return uvloop.run(deep_rows(url, asked, LIMIT * THOUSANDTH))


def timed(center: CenterDoor, path: str) -> float:
    """Milliseconds of the 95th percentile."""
    taken = []
    for _ in range(CALLS):
        begun = time.perf_counter()
        center.raw(path)
        taken.append(1000 * (time.perf_counter() - begun))
    return sorted(taken)[int(0.95 * CALLS) - 1]


def measured(url: str, count: int) -> dict[str, Any]:
    filled = fill(url, count)
    deep = deep_keys(url)
    with (
        tempfile.TemporaryDirectory(prefix="skep-bench-") as folder,
        running_center(Path(folder), SKEP_STORE_URL=url) as center,
    ):
        pages = pages_of(center, deep)
        alone = {name: timed(center, page) for name, page in pages.items()}
        begun = time.perf_counter()
        with accepting(center) as accepted:
            found = {name: timed(center, page) for name, page in pages.items()}
        rate = accepted[0] / (time.perf_counter() - begun)
    slowest = sorted(found, key=lambda name: -found[name])
    return {
        "p95_ms": neat(found[slowest[0]]),
        "slowest": {name: neat(found[name]) for name in slowest[:8]},
        "slowest_alone": {name: neat(alone[name]) for name in slowest[:8]},
        "p95_ms_alone": neat(max(alone.values())),
        "pages": len(found),
        "load": neat(os.getloadavg()[0]),
        "accepted_per_second": neat(rate),
        "filled_in_seconds": neat(filled),
    }


def run(options: Options) -> Result:
    count = options.listed
    with tempfile.TemporaryDirectory(prefix="skep-bench-") as folder, postgres() as server:
        found = {
            "sqlite": measured(f"sqlite:///{folder}/skep.db", count),
            "postgresql": measured(server.fresh_database(), count),
        }
    worst = max(one["p95_ms"] for one in found.values())
    kept_up = all(one["accepted_per_second"] >= 0.9 * RATE for one in found.values())
    return Result(
        name="lists",
        unit="ms",
        ours=worst,
        peer=None,
        floor=None,
        ratio=worst / BAR,
        bar=1.0,
        ok=worst <= BAR and kept_up,
        meaning="95th percentile of the slowest page of any list / 100 ms",
        more={"p95_ms": worst, **found, "requests": count, "versions": versions("sqlalchemy")},
    )
