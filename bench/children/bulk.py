"""In-process bulk accept: validation and store, no HTTP. Arguments: store URL, requests."""

from __future__ import annotations

import json
import sys
import time
from random import Random

import uvloop

from bench.enqueue import urls
from skep.jobs.intake import Intake
from skep.jobs.request_validation import Validator
from skep.model.downloader_kinds import BUILT_IN_SCHEMES
from skep.model.run import NewRun
from skep.runtime.clock import SystemClock
from skep.settings import StoreSettings
from skep.store.open_store import open_store


async def measure(url: str, count: int) -> dict[str, float]:
    store, clock = open_store(url, StoreSettings()), SystemClock()
    intake = Intake(store, Validator(BUILT_IN_SCHEMES, Random(1)), clock)
    offered = urls(count)
    await store.open()
    for run in ("warm", "cold"):
        await intake.open_run(run, NewRun())
    await intake.accept("warm", offered[:100])
    begun = time.perf_counter()
    accepted = await intake.accept("cold", offered)
    seconds = time.perf_counter() - begun
    await store.close()
    return {"seconds": seconds, "accepted": accepted.new}


if __name__ == "__main__":
    print(json.dumps(uvloop.run(measure(sys.argv[1], int(sys.argv[2])))))
