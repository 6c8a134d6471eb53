"""`backlog`: is a center as fast with ten million waiting requests as with ten?

On SQLite and on PostgreSQL (fsync on): one dispatch of 7,000 requests over 40 jobs in all lanes,
the counts of a job's page through the API of a real `skep center`, the peak memory of that center,
and the sweeps that the dispatcher makes in every round.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.centers import CenterDoor, running_center
from bench.figures import Figure, Result, check, neat
from bench.options import Options
from bench.processes import answer, versions
from skep.testing.servers import postgres

SECONDS_BAR, PAGE_BAR, MEMORY_BAR = 1.0, 0.050, 300.0
#: Maximum seconds for filling one database.
PATIENCE = 3600.0
CALLS = 20
#: The calls of a job's page for its counts; `run-7` is one of 40 equal runs.
PAGE = ("/api/v1/runs/run-7", "/api/v1/ledger?run=run-7")


def child(act: str, url: str, count: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "bench.children.backlog", act, url, str(count)]
    return answer(command, PATIENCE)


def served(url: str) -> dict[str, float]:
    """The calls of the page, and the memory of a center that dispatches from this backlog."""
    with (
        tempfile.TemporaryDirectory(prefix="skep-bench-") as folder,
        running_center(Path(folder), SKEP_STORE_URL=url) as center,
    ):
        busy = center.call("GET", "/api/v1/ledger?run=run-7")["ledger"]
        check(True, busy["accepted"] > 0, "the center has the backlog")
        taken = [_page(center) for _ in range(CALLS)]
        return {"page": statistics.median(taken), "memory": highest_megabytes(center.pid)}


def _page(center: CenterDoor) -> float:
    begun = time.perf_counter()
    for path in PAGE:
        center.call("GET", path)
    return time.perf_counter() - begun


def highest_megabytes(pid: int) -> float:
    """The peak memory of the process so far."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith("VmHWM")]
    return int(line.split()[1]) / 1024


def told(url: str, count: int) -> dict[str, Any]:
    """Fill and measure one database."""
    filled = child("fill", url, count)
    found = {name: Figure(tuple(values)) for name, values in child("measure", url, count).items()}
    center = served(url)
    dispatch, page, memory = found.pop("dispatch"), center["page"], center["memory"]
    milliseconds = {f"{name} ms": neat(1000 * figure.median) for name, figure in found.items()}
    return {
        "dispatch_seconds": dispatch.told(),
        "page_ms": neat(1000 * page),
        "center_mb": neat(memory),
        "waiting": filled["waiting"],
        "filled_in_seconds": neat(filled["seconds"]),
        **milliseconds,
        "ok": dispatch.median <= SECONDS_BAR and page <= PAGE_BAR and memory <= MEMORY_BAR,
    }


def on_sqlite(count: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="skep-bench-") as folder:
        return told(f"sqlite:///{folder}/skep.db", count)


def on_postgres(count: int) -> dict[str, Any]:
    with postgres(durable=True) as server:
        return told(server.fresh_database(), count)


DATABASES: dict[str, Callable[[int], dict[str, Any]]] = {
    "sqlite": on_sqlite,
    "postgresql": on_postgres,
}


def run(options: Options) -> Result:
    wanted = options.sets or tuple(DATABASES)
    each = {name: DATABASES[name](options.backlog) for name in wanted}
    worst = max(each, key=lambda name: float(each[name]["dispatch_seconds"]["median"]))
    slowest = float(each[worst]["dispatch_seconds"]["median"])
    return Result(
        name="backlog",
        unit="s",
        ours=slowest,
        peer=None,
        floor=None,
        ratio=slowest,
        bar=SECONDS_BAR,
        ok=all(one["ok"] for one in each.values()),
        meaning=f"seconds for one dispatch of 7,000, on the slower database ({worst}); less is"
        " better",
        more={
            **each,
            "requests": options.backlog,
            "page_bar_ms": 1000 * PAGE_BAR,
            "memory_bar_mb": MEMORY_BAR,
            "versions": versions("sqlalchemy", "psycopg"),
        },
    )
