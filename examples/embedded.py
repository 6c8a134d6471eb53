"""Run a center and an agent inside your program: no server to install or start.

    python examples/embedded.py FOLDER URL...

All data is in FOLDER; the next start continues where the last one stopped.
"""

from __future__ import annotations

import asyncio
import sys
from random import Random

from skep.embed import LocalAgent, LocalCenter, with_loopback
from skep.model.run import NewRun
from skep.runtime.clock import SystemClock
from skep.settings import load

RUN = "embedded-example"


async def main(folder: str, *pages: str) -> None:
    clock, rng = SystemClock(), Random()  # noqa: S311 - jitter, no secrets
    settings = with_loopback(load(flags={"data": folder, "center.port": 0}))
    center = LocalCenter(settings, clock, rng)
    agent = LocalAgent(center, clock, rng)
    await center.start()
    try:
        await agent.start()
        services = center.center.services
        await services.intake.open_run(RUN, NewRun())
        await services.intake.accept(RUN, pages)
        while (await services.store.ledgers.read(RUN)).open:
            await clock.sleep(0.05)
        print((await services.store.ledgers.read(RUN)).line())
    finally:
        await agent.stop()
        await center.stop()


if __name__ == "__main__":
    if len(sys.argv) < 3:  # noqa: PLR2004 - a folder and a page
        sys.exit(__doc__)
    asyncio.run(main(*sys.argv[1:]))
