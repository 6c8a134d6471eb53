"""The demo site as a child that reports its hits: a line in, a line of JSON out.

It is never killed, because it is a witness. Arguments: pages, seconds before each response.
"""

from __future__ import annotations

import asyncio
import json
import sys

import uvloop

from skep.testing.site import DemoSite


async def serve(pages: int, latency: float) -> None:
    loop = asyncio.get_running_loop()
    async with DemoSite(pages, latency) as site:
        print(json.dumps({"url": site.url}), flush=True)
        while await loop.run_in_executor(None, sys.stdin.readline):
            print(json.dumps(site.hits), flush=True)


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1]), float(sys.argv[2])))
