"""Conformance tests of a store for pages that are read again. Part of `StoreConformance`."""

from __future__ import annotations

import pytest

from skep.errors import UnknownRun
from skep.store.ports import Store
from skep.store.ports.blocks import Placed
from skep.testing.conformance.store.ground import NOW
from skep.testing.conformance.store.leasing import leased
from skep.testing.conformance.store.reports import done, failed, ids, settle, settlement


class PagePromises:
    async def test_ended_blocks_are_read_again_and_again(self, store: Store) -> None:
        blocks = await leased(store, 8, size=2)
        for number, block in enumerate(blocks[:3]):
            outcomes = [*done(ids(block)[:1]), *failed(ids(block)[1:])]
            outcomes[0].length = 10
            item = settlement(block, outcomes, frames=b"x" * 10, placed=Placed("seg", 100 * number))
            assert await settle(store, item) == ["stored"]
        driver = await store.checkpoints.take_over("run")
        taken = [block.id for block in blocks[:2]]
        await store.checkpoints.checkpoint("run", driver, taken, [], [], NOW)
        for _ in range(2):
            read = await store.checkpoints.ended("run", 0, 10, collected=True)
            assert [block.id for block in read] == taken
        everything = await store.checkpoints.ended("run", 0, 10, collected=False)
        assert [block.id for block in everything] == [block.id for block in blocks[:3]]
        page, dead = everything[1].pages
        assert (page.state, page.segment, page.offset, page.length) == ("done", "seg", 100, 10)
        assert (dead.state, dead.failure, dead.length) == ("dead", "timeout", 0)
        later = await store.checkpoints.ended("run", taken[0], 1, collected=False)
        assert [block.id for block in later] == [taken[1]]

    async def test_pages_belong_to_one_run(self, store: Store) -> None:
        (mine,) = await leased(store, 2)
        (others,) = await leased(store, 2, run="other")
        await settle(store, settlement(mine, done(ids(mine))))
        await settle(store, settlement(others, done(ids(others))))
        read = await store.checkpoints.ended("other", 0, 10, collected=False)
        assert [block.id for block in read] == [others.id]
        with pytest.raises(UnknownRun):
            await store.checkpoints.ended("ghost", 0, 10, collected=False)
