"""`drain`: lease and acknowledge blocks of 100, every outcome durable before the answer.

Ours uses the center's own Leases and Ingest; the floor is hand-written SQL for exactly the same
rows, in transactions of the same size, on the same database: SQLite with synchronous FULL, and
PostgreSQL with fsync on. 20 blocks per call, as agents do.
"""

from __future__ import annotations

import tempfile
from functools import partial
from typing import Any

from bench.figures import Figure, Result, Sample, alternate, check, neat
from bench.options import Options
from bench.processes import own, versions
from skep.testing.servers import Postgres, postgres

REQUESTS = 20_000
RATIO_BAR, RATE_BAR = 0.4, 30_000.0

Found = dict[str, dict[str, Figure]]


def ours(url: str) -> Sample:
    found = own("bench.children.drain", url, str(REQUESTS))
    check(REQUESTS, found["done"], "requests drained")
    return {
        "rate": REQUESTS / found["seconds"],
        "lease_ms": 1000 * found["lease"] / (REQUESTS / 2000),
        "report_ms": 1000 * found["report"] / (REQUESTS / 2000),
        "cpu_us": 1e6 * found["cpu"] / REQUESTS,
    }


def floor(module: str, url: str, place: str) -> Sample:
    own("bench.children.drain", url, str(REQUESTS), "fill")
    found = own(module, place, str(REQUESTS))
    check(REQUESTS, found["done"], "requests drained by hand")
    return {"rate": REQUESTS / found["seconds"], "cpu_us": 1e6 * found["cpu"] / REQUESTS}


def ours_on_sqlite() -> Sample:
    with tempfile.TemporaryDirectory(prefix="skep-bench-") as folder:
        return ours(f"sqlite:///{folder}/skep.db")


def floor_on_sqlite() -> Sample:
    with tempfile.TemporaryDirectory(prefix="skep-bench-") as folder:
        file = f"{folder}/skep.db"
        return floor("bench.floors.drain_sqlite", f"sqlite:///{file}", file)


def ours_on_postgres(server: Postgres) -> Sample:
    return ours(server.fresh_database())


def floor_on_postgres(server: Postgres) -> Sample:
    url = server.fresh_database()
    return floor("bench.floors.drain_postgres", url, url)


def told(found: Found, database: str) -> dict[str, Any]:
    """The figures and the result of one database."""
    mine, hand = found[f"{database} ours"], found[f"{database} floor"]
    ratio = mine["rate"].median / hand["rate"].median
    return {
        "ours": mine["rate"].told(),
        "floor": hand["rate"].told(),
        "ratio": neat(ratio),
        # Of the fastest samples, which other load on the machine affected least.
        "ratio_of_best": neat(mine["rate"].spread[1] / hand["rate"].spread[1]),
        "lease_ms_per_2000": mine["lease_ms"].told(),
        "report_ms_per_2000": mine["report_ms"].told(),
        "cpu_us_per_request": mine["cpu_us"].told(),
        "floor_cpu_us_per_request": hand["cpu_us"].told(),
        "ok": ratio >= RATIO_BAR and mine["rate"].median >= RATE_BAR,
    }


def run(options: Options) -> Result:
    with postgres(durable=True) as server:
        found = alternate(
            {
                "sqlite ours": ours_on_sqlite,
                "sqlite floor": floor_on_sqlite,
                "postgresql ours": partial(ours_on_postgres, server),
                "postgresql floor": partial(floor_on_postgres, server),
            },
            options.rounds,
        )
    each = {name: told(found, name) for name in ("sqlite", "postgresql")}
    worst = min(each, key=lambda name: float(each[name]["ratio"]))
    return Result(
        name="drain",
        unit="requests/s",
        ours=each[worst]["ours"]["median"],
        peer=None,
        floor=each[worst]["floor"]["median"],
        ratio=each[worst]["ratio"],
        bar=RATIO_BAR,
        ok=all(one["ok"] for one in each.values()),
        meaning=f"our requests/s / hand-written SQL, on the database where it is least ({worst})",
        more={
            **each,
            "rate_bar": RATE_BAR,
            "rounds": options.rounds,
            "versions": versions("sqlalchemy", "psycopg"),
        },
    )
