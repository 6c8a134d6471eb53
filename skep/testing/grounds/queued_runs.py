"""Runs with requests in their lanes, for tests with agents played by hand.

What is put in has been through the API; nothing is written to the store behind its back.
"""

from __future__ import annotations

from skep.testing.grounds.centers import RunningCenter

#: An address of one's own has no pace: such tests are about lanes and leases.
SITE = "http://127.0.0.1"


def urls(count: int, word: str = "page") -> list[str]:
    """`count` URLs, all different."""
    return [f"{SITE}/{word}/{n}" for n in range(count)]


async def fill(center: RunningCenter, run: str, count: int, **settings: object) -> None:
    """A run with waiting requests, all of them in lanes as far as there is room."""
    await center.open_run(run, **settings)
    assert (await center.put(run, urls(count)))["new"] == count
    await center.dispatched()
