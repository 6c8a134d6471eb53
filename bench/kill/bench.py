"""`kill` in two set-ups: SQLite alone, and PostgreSQL with Redis, which is killed too."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any

from bench.figures import Result
from bench.kill.fleet import HASTE, Fleet
from bench.kill.ordeal import READY_BAR, Ordeal
from bench.options import Options
from skep.testing.servers import postgres, redis


def on_sqlite(options: Options) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="skep-bench-") as name:
        folder = Path(name)
        url = f"sqlite:///{folder / 'center' / 'skep.db'}"
        return _ordeal(Fleet(folder, {}), url, options, folder)


def on_postgres_and_redis(options: Options) -> dict[str, Any]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="skep-bench-")))
        url = stack.enter_context(postgres(durable=True)).fresh_database()
        bus = stack.enter_context(redis())
        settings = {"SKEP_STORE_URL": url, "SKEP_BUS_URL": bus.url}
        return _ordeal(Fleet(folder, settings, bus), url, options, folder)


def _ordeal(fleet: Fleet, url: str, options: Options, folder: Path) -> dict[str, Any]:
    rng = Random(options.seed)
    ordeal = Ordeal(fleet, url, options.requests, options.kills, rng, options.seed)
    return ordeal.run(folder)


SETS: dict[str, Callable[[Options], dict[str, Any]]] = {
    "sqlite": on_sqlite,
    "postgres_redis": on_postgres_and_redis,
}


def run(options: Options) -> Result:
    found = {name: SETS[name](options) for name in options.sets or tuple(SETS)}
    lost = sum(one["lost"] for one in found.values())
    return Result(
        name="kill",
        unit="requests lost",
        ours=lost,
        peer=None,
        floor=0,
        ratio=lost,
        bar=0,
        ok=all(one["ok"] for one in found.values()),
        meaning="requests lost over all kill -9; the bar is none at all",
        more={
            "lost": lost,
            "repeated": sum(one["repeated"] for one in found.values()),
            "ready_bar": READY_BAR,
            **found,
            "seed": options.seed,
            "requests": options.requests,
            "kills": options.kills,
            "settings": HASTE,
        },
    )
