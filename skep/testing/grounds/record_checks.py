"""Checks at the end of a test that the records of a center are consistent, without repairs.

Uses the queries of the self-check, and repairs nothing. Active work ends within some seconds; a
difference that stays would need a repair by the self-check.
"""

from __future__ import annotations

import asyncio
from typing import get_args

from skep.center.services import Services
from skep.errors import Unavailable
from skep.store.ports.self_checks import StoreCheck

KINDS: tuple[StoreCheck, ...] = get_args(StoreCheck)
SETTLE_SECONDS = 10.0
PAUSE = 0.05
_LIMIT = 1000


async def assert_whole(services: Services) -> None:
    """Raises AssertionError, which names repairs or differences."""
    found = await _what_stays(services)
    assert not found, f"records that differ: {found}"
    assert not services.repairs.done, f"repaired: {services.repairs.last}"


async def _what_stays(services: Services) -> dict[str, list[str]]:
    clock = services.clock
    deadline = clock.monotonic() + SETTLE_SECONDS
    try:
        while found := await differences(services):
            if clock.monotonic() > deadline:
                return found
            await asyncio.sleep(PAUSE)
    except Unavailable:  # a test may end without its store or its bus
        return {}
    return {}


async def differences(services: Services) -> dict[str, list[str]]:
    """By kind, in the first rows of each table and the first entries of the lanes."""
    store = services.store
    found: dict[str, list[str]] = {}
    for kind in KINDS:
        found[kind] = (await store.checks.find(kind, "", _LIMIT))[0]
    refs, _ = await services.bus.lanes.scan("", _LIMIT)
    ids = sorted({ref.id for ref in refs})
    surplus = set(ids) - await store.blocks.still_claimable(ids)
    found["lanes"] = [str(number) for number in sorted(surplus)]
    return {kind: names for kind, names in found.items() if names}
