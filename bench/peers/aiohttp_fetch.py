"""aiohttp on uvloop: 64 tasks, complete bodies read. Run by its own Python.

Arguments: base URL, pages, tasks.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from collections.abc import Iterator

import aiohttp
import uvloop


async def work(session: aiohttp.ClientSession, urls: Iterator[str], found: list[int]) -> None:
    for url in urls:
        async with session.get(url) as answer:
            body = await answer.read()
            if answer.status == 200 and len(body) == answer.content_length:
                found.append(len(body))


async def fetch(session: aiohttp.ClientSession, urls: list[str], width: int) -> list[int]:
    found: list[int] = []
    shared = iter(urls)
    await asyncio.gather(*(work(session, shared, found) for _ in range(width)))
    return found


def cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def measure(base: str, pages: int, width: int) -> dict[str, float]:
    connector = aiohttp.TCPConnector(limit=width)
    async with aiohttp.ClientSession(connector=connector) as session:
        await fetch(session, [f"{base}{n}" for n in range(width)], width)
        urls = [f"{base}{n}" for n in range(pages)]
        used, begun = cpu(), time.perf_counter()
        found = await fetch(session, urls, width)
        used, seconds = cpu() - used, time.perf_counter() - begun
    return {"cpu": used, "seconds": seconds, "pages": len(found), "bytes": sum(found)}


if __name__ == "__main__":
    print(json.dumps(uvloop.run(measure(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))))
