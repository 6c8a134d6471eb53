"""Runs with requests in their lanes, for tests with manual agents.

Requests are submitted through the API; nothing is written to the store directly.
"""

from __future__ import annotations

from skep.testing.grounds.centers import RunningCenter

#: A loopback address has no rate limit: such tests are about lanes and leases.
SITE = "http://127.0.0.1"


def urls(count: int, word: str = "page") -> list[str]:
    """`count` different URLs."""
    return [f"{SITE}/{word}/{n}" for n in range(count)]


async def fill(center: RunningCenter, run: str, count: int, **settings: object) -> None:
    """A run with waiting requests, in lanes as far as they fit."""
    await center.open_run(run, **settings)
    assert (await center.put(run, urls(count)))["new"] == count
    await center.dispatched()
