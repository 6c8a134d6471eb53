"""`failover`: two centers on PostgreSQL and Redis, each killed with -9 twenty times.

One client submits and two read, without a pause, with both addresses. The bar is that no call fails
after it was tried at both centers; the latency while a center is down is reported as well.
"""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import ExitStack
from pathlib import Path

import msgspec

from bench.centers import clean_environment
from bench.figures import Result, check, neat
from bench.options import Options
from skep.testing.faults.failover_clients import Figures, Load
from skep.testing.fleet import Balance, Fleet
from skep.testing.servers import postgres, redis

#: Kills of each center.
KILLS = 20
CENTERS = 2
REQUESTS = 20_000
PATIENCE = 300.0
LATENCY = 0.01
#: Seconds between two kills with both centers up, which give the latency without faults.
REST = 0.5


def run(_options: Options) -> Result:
    with ExitStack() as ending:
        name = ending.enter_context(tempfile.TemporaryDirectory(prefix="skep-bench-"))
        database = ending.enter_context(postgres(durable=True))
        queue = ending.enter_context(redis())
        bytecode = clean_environment()["PYTHONPYCACHEPREFIX"]
        settings = {
            "SKEP_STORE_URL": database.fresh_database(),
            "SKEP_BUS_URL": queue.url,
            "SKEP_ARCHIVE_URL": str(Path(name) / "archive"),
            "PYTHONDONTWRITEBYTECODE": "",
            "PYTHONPYCACHEPREFIX": bytecode,
        }
        figures, balance = asyncio.run(ordeal(Path(name), settings, CENTERS * KILLS, REQUESTS))
    check(REQUESTS, balance.ledger.done, "requests that are done")
    return _result(figures, balance)


async def ordeal(
    folder: Path, settings: dict[str, str], kills: int, requests: int
) -> tuple[Figures, Balance]:
    """The whole run; raises AssertionError if anything was lost or doubled."""
    async with Fleet(folder, settings, latency=LATENCY, pages=requests) as fleet:
        centers = [fleet.center, await fleet.another_center("second")]
        await fleet.reach(*centers)
        urls = [center.url for center in centers]
        few = {"SKEP_AGENT_CONCURRENCY": "8"}
        await fleet.agent("a", few, urls)
        await fleet.agent("b", few, urls[::-1])
        load = Load(fleet, centers, requests)
        calling = asyncio.create_task(load.keep_calling())
        await load.kill_in_turn(kills, REST)
        await fleet.until_done(requests, PATIENCE)
        load.stop()
        await calling
        return load.figures(), await fleet.check()


def _result(figures: Figures, balance: Balance) -> Result:
    given = msgspec.structs.asdict(figures)
    told = {name: neat(v) if isinstance(v, float) else v for name, v in given.items()}
    lost = balance.lost + balance.doubled + balance.ledger.unaccounted
    return Result(
        name="failover",
        unit="failed calls",
        ours=figures.failed_calls,
        peer=None,
        floor=0,
        ratio=figures.failed_calls,
        bar=0,
        ok=figures.failed_calls == 0 and lost == 0,
        meaning=f"calls that no center answered, over {figures.kills} kill -9; the bar is none",
        more={"seconds_and_counts": told, **balance.figures(), "done": balance.ledger.done},
    )
