"""Reports that come at nearly the same moment are written in one go, and fail each by itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest

from skep.archive.ports import Archive
from skep.errors import StoreDown
from skep.model.block import BlockReport, Leased
from skep.model.hosts.politeness import Politeness
from skep.results.ingest import Ingest
from skep.settings import LaneSettings, StoreSettings
from skep.store.open_store import open_store
from skep.store.ports import Store
from skep.store.ports.blocks import Blocks, Settlement, SettleResult
from skep.testing.clock import ManualClock
from skep.testing.conformance.store.ground import assert_accounted, ledger
from skep.testing.conformance.store.leasing import leased
from skep.testing.conformance.store.reports import done, ids
from skep.testing.polling import until


class Watched:
    """A real store's blocks. The first settlement waits for a word, and one may be refused."""

    def __init__(self, blocks: Blocks) -> None:
        self._blocks = blocks
        self.go_on = asyncio.Event()
        #: How many were written at once.
        self.calls: list[int] = []
        self.refused: int | None = None
        self.error: Exception = ValueError("a bug")

    async def settle(
        self, settlements: Sequence[Settlement], now: float, politeness: Politeness
    ) -> list[SettleResult]:
        self.calls.append(len(settlements))
        await self.go_on.wait()
        if any(one.report.block == self.refused for one in settlements):
            raise self.error
        return await self._blocks.settle(settlements, now, politeness)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._blocks, name)


class Ground:
    """An ingest over a real SQLite store, and three blocks in an agent's hands."""

    def __init__(self, store: Store, blocks: list[Leased]) -> None:
        self.store = store
        self.held = blocks
        self.blocks = Watched(store.blocks)
        watched = _Rooms(store, self.blocks)
        rng = Random(1)
        nowhere = cast("Archive", None)  # no report here has bytes to keep
        clock = ManualClock()
        settings, rooms = LaneSettings(), cast("Store", watched)
        ingest = Ingest(settings, rooms, nowhere, clock, rng, Politeness(), together=True)
        self._take = ingest.take

    async def reported(self) -> list[list[SettleResult] | BaseException]:
        """All three, while the first is being written."""
        taking = [asyncio.create_task(self._take("agent", [self._report(b)])) for b in self.held]
        await until(lambda: self.blocks.calls, step=0)
        self.blocks.go_on.set()
        return await asyncio.gather(*taking, return_exceptions=True)

    def _report(self, block: Leased) -> BlockReport:
        return BlockReport(block.id, block.token, done(ids(block)))


class _Rooms:
    def __init__(self, store: Store, blocks: Watched) -> None:
        self._store = store
        self.blocks = blocks

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


@pytest.fixture
async def ground(tmp_path: Path) -> AsyncIterator[Ground]:
    store = open_store(f"sqlite:///{tmp_path / 'skep.db'}", StoreSettings())
    await store.open()
    yield Ground(store, await leased(store, 30))
    await store.close()


def verdicts(found: list[list[SettleResult] | BaseException]) -> list[object]:
    return [one[0].verdict if isinstance(one, list) else type(one) for one in found]


async def test_what_comes_meanwhile_is_written_at_once(ground: Ground) -> None:
    """Each caller has its own verdict, and no more transactions are needed than two."""
    found = await ground.reported()
    assert verdicts(found) == ["stored"] * 3
    assert [one[0].block for one in found if isinstance(one, list)] == [b.id for b in ground.held]
    assert sum(ground.blocks.calls) == 3
    assert len(ground.blocks.calls) < 3
    assert (await ledger(ground.store)).done == 30
    await assert_accounted(ground.store)


async def test_one_that_cannot_be_written_harms_no_other(ground: Ground) -> None:
    ground.blocks.refused = ground.held[1].id
    assert verdicts(await ground.reported()) == ["stored", ValueError, "stored"]
    assert (await ledger(ground.store)).done == 20
    await assert_accounted(ground.store)


async def test_a_store_that_is_away_is_away_for_all(ground: Ground) -> None:
    """Fault 26: no agent is told that anything was kept, and agents send again."""
    ground.blocks.refused = ground.held[1].id
    ground.blocks.error = StoreDown("gone")
    found = await ground.reported()
    assert StoreDown in verdicts(found)
    kept = verdicts(found).count("stored")
    assert (await ledger(ground.store)).done == 10 * kept
    await assert_accounted(ground.store)
