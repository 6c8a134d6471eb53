"""Short functions for the store's conformance suite: packing and leasing of blocks.

Used by tests only.
"""

from __future__ import annotations

from collections.abc import Iterable

from skep.model.block import BlockRef, Leased
from skep.store.ports import Store
from skep.store.ports.requests import PackPlan
from skep.testing.conformance.store.ground import LATER, NOW, new_run, rows


async def pack(
    store: Store, run: str = "run", limit: int = 1000, size: int = 10, priority: int = 5
) -> list[BlockRef]:
    packing = await store.requests.pack([PackPlan(run, priority, limit, size)], NOW)
    return packing.blocks


async def packed(store: Store, count: int, run: str = "run", size: int = 10) -> list[BlockRef]:
    """A new run with `count` requests in READY blocks."""
    await new_run(store, run)
    await store.requests.accept(run, rows(count), NOW)
    return await pack(store, run, size=size)


async def lease(
    store: Store,
    refs: Iterable[BlockRef | int],
    agent: str = "agent",
    now: float = NOW,
    until: float = LATER,
) -> list[Leased]:
    ids = [ref if isinstance(ref, int) else ref.id for ref in refs]
    return await store.blocks.lease(ids, agent, now, until)


async def leased(store: Store, count: int, run: str = "run", size: int = 10) -> list[Leased]:
    """A new run with `count` requests, leased to `agent`."""
    return await lease(store, await packed(store, count, run, size))


async def leased_one(store: Store, count: int, run: str = "run") -> Leased:
    """The same in one block."""
    (block,) = await leased(store, count, run, size=count)
    return block
