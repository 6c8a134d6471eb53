"""Conformance tests of a store for allocations, chains and targets (C4 to C6)."""

from __future__ import annotations

import asyncio

import pytest

from skep.errors import UnknownRun
from skep.model.fleet.placement import Placement
from skep.model.states import BlockState, RunState
from skep.store.ports import Store
from skep.store.ports.placement import Placing, Wanted
from skep.store.ports.requests import PackPlan
from skep.testing.conformance.store.ground import NOW, history, ledger, new_run, row, rows
from skep.testing.conformance.store.leasing import lease, pack
from skep.testing.conformance.store.reports import done, failed, ids, settle, settlement, works

FIXED = Placement("fixed", 2)
CHAINED = Placement("chained", 2)


class ByNumber:
    """Even requests to a, odd ones to b; requests with a place to their place."""

    by_session = True
    chained = True

    def __init__(self) -> None:
        self.seen: list[Wanted] = []

    def target(self, wanted: Wanted) -> str | None:
        self.seen.append(wanted)
        if wanted.place is not None:
            return None if wanted.place.startswith(">") else wanted.place
        return "a" if int(wanted.uri.rpartition("/")[2]) % 2 == 0 else "b"


async def packed_by(store: Store, placing: Placing, size: int = 10) -> list[tuple[str, int]]:
    """(target, size) of new blocks of `run`."""
    plan = PackPlan("run", 5, 1000, size)
    packing = await store.requests.pack([plan], NOW, None, {"run": placing})
    return [(ref.target, ref.size) for ref in packing.blocks]


async def done_by(store: Store, agent: str, uri: str = "http://host/0") -> int:
    """A first request that an agent has downloaded; returns its id."""
    (ref,) = await _ready(store)
    (block,) = await lease(store, [ref], agent)
    assert [work.uri for work in works(block)] == [uri]
    await settle(store, settlement(block, done(ids(block)), agent=agent))
    return ids(block)[0]


async def _ready(store: Store) -> list[int]:
    return [ref.id for ref in await store.blocks.claimable(100)]


class AllocationPromises:
    async def test_a_choice_is_kept_once(self, store: Store, other_store: Store) -> None:
        """C4, fault 2: a second caller gets the stored choice."""
        await new_run(store, placement=FIXED)
        choices = (["a", "b"], ["c", "d"], ["a", "d"])
        stores = (store, other_store, store)
        kept = await asyncio.gather(
            *(s.allocations.allocate("run", c, NOW) for s, c in zip(stores, choices, strict=True))
        )
        assert len({tuple(one.agents) for one in kept}) == 1
        assert len(kept[0].agents) == 2
        assert [one.run for one in await other_store.allocations.open()] == ["run"]

    async def test_an_allocation_tells_everything(self, store: Store) -> None:
        await new_run(store, placement=FIXED, downloader="curl")
        assert await store.allocations.get("run") is None
        made = await store.allocations.allocate("run", ["b", "a"], NOW)
        assert made == await store.allocations.get("run")
        assert (made.agents, made.at, made.state) == (["b", "a"], NOW, RunState.RUNNING)
        assert (made.settings.placement, made.settings.downloader) == (FIXED, "curl")
        assert made.target == f"run:{made.number}"
        assert [one.run for one in await store.allocations.of_agent("a", 10)] == ["run"]
        assert await store.allocations.of_agent("z", 10) == []

    async def test_unknown_runs(self, store: Store) -> None:
        with pytest.raises(UnknownRun):
            await store.allocations.allocate("nobody", [], NOW)
        with pytest.raises(UnknownRun):
            await store.allocations.get("nobody")

    async def test_an_ended_run_releases_once(self, store: Store, other_store: Store) -> None:
        """A2: one center notifies the agents, whichever center runs the step."""
        await new_run(store, placement=FIXED)
        await store.allocations.allocate("run", ["a"], NOW)
        assert await store.allocations.ended(10) == []
        assert await store.allocations.release(["run"], NOW) == []
        await store.runs.move("run", RunState.FINISHED, "", NOW)
        assert [one.run for one in await store.allocations.ended(10)] == ["run"]
        told = await asyncio.gather(
            *(s.allocations.release(["run"], NOW + 1) for s in (store, other_store))
        )
        assert [one.run for found in told for one in found] == ["run"]
        assert await store.allocations.open() == []
        again = await store.allocations.allocate("run", ["z"], NOW + 2)
        assert (again.agents, again.released_at) == (["a"], None)

    async def test_a_failed_run_releases_and_gets_the_same_agents_again(self, store: Store) -> None:
        """E7: a failed run has no allocation; continued, it gets the same agents."""
        await new_run(store, placement=FIXED)
        await store.allocations.allocate("run", ["a"], NOW)
        await store.runs.move("run", RunState.PAUSED, "", NOW)
        assert await store.runs.over(["run", "nobody"]) == ["nobody"]
        assert await store.allocations.ended(10) == []
        await store.runs.move("run", RunState.RUNNING, "", NOW)
        await store.runs.move("run", RunState.FAILED, "broken", NOW)
        assert await store.runs.over(["run"]) == ["run"]
        assert [one.run for one in await store.allocations.release(["run"], NOW)] == ["run"]
        await store.runs.move("run", RunState.RUNNING, "", NOW)
        again = await store.allocations.allocate("run", [], NOW + 1)
        assert (again.agents, again.released_at) == (["a"], None)

    async def test_a_slot_is_taken_over_once(self, store: Store) -> None:
        """C6: restart; the agent that was given up stays on record, with the reason."""
        await new_run(store, placement=CHAINED)
        await store.allocations.allocate("run", ["a", "b"], NOW)
        assert await store.allocations.replace("run", "a", "c", "it is gone", NOW + 5)
        assert not await store.allocations.replace("run", "a", "d", "it is gone", NOW + 6)
        found = await store.allocations.get("run")
        assert found is not None
        assert found.agents == ["c", "b"]
        gone = next(seat for seat in found.seats if seat.agent == "a")
        assert (gone.until, gone.why, gone.slot) == (NOW + 5, "it is gone", 0)
        assert await store.allocations.replace("run", "c", "a", "it is gone too", NOW + 7)
        found = await store.allocations.get("run")
        assert found is not None
        assert found.agents == ["a", "b"]


class TargetPromises:
    async def test_a_block_has_one_target(self, store: Store) -> None:
        """C5: blocks are packed by target."""
        await new_run(store, placement=CHAINED)
        await store.requests.accept("run", rows(25), NOW)
        found = await packed_by(store, ByNumber())
        assert sorted(found) == [("a", 3), ("a", 10), ("b", 2), ("b", 10)]
        assert {ref.target for ref in await store.blocks.claimable(10)} == {"a", "b"}

    async def test_a_kind_is_a_target(self, store: Store) -> None:
        """C4: by capability, for runs without other rules."""
        await new_run(store, downloader="python")
        await store.requests.accept("run", rows(3), NOW)
        assert [ref.target for ref in await pack(store)] == ["kind:python"]

    async def test_without_agents_requests_are_held_back(self, store: Store) -> None:
        """C6: parked without a failure, and checked again."""
        await new_run(store, placement=FIXED)
        await store.requests.accept("run", rows(5), NOW)
        assert await pack(store) == []
        assert (await ledger(store)).delayed == 5
        assert await store.requests.wake(NOW + 60, 100) == 5
        assert (await ledger(store)).waiting == 5

    async def test_blocks_for_those_who_are_gone_are_taken_apart(self, store: Store) -> None:
        """C6, fault 17: their requests are placed again; others do not change."""
        await new_run(store, placement=CHAINED)
        await store.requests.accept("run", rows(20), NOW)
        await packed_by(store, ByNumber())
        assert sorted(await store.allocations.targets()) == ["a", "b"]
        (block,) = await store.allocations.unpack(["a", "nobody"], NOW, 10)
        assert (await store.blocks.get(block)).state is BlockState.FAILED
        assert "no agent can take work for a" in (await history(store, block))[-1][1]
        found = await ledger(store)
        assert (found.delayed, found.queued) == (10, 10)
        assert await store.allocations.targets() == ["b"]
        assert await store.allocations.unpack([], NOW, 10) == []

    async def test_a_leased_block_is_not_taken_apart(self, store: Store) -> None:
        await new_run(store, placement=CHAINED)
        await store.requests.accept("run", [row(0)], NOW)
        await packed_by(store, ByNumber())
        assert await lease(store, await _ready(store), "a")
        assert await store.allocations.unpack(["a"], NOW, 10) == []

    async def test_sessions_and_samples(self, store: Store) -> None:
        """C5: the key `session` is read from a request's arguments."""
        await new_run(store, placement=CHAINED)
        arguments = b"\x95\xa3GET\x80\xc4\x00\x80\xa2s1"
        await store.requests.accept("run", [row(0, arguments=arguments), row(1)], NOW)
        placing = ByNumber()
        await packed_by(store, placing)
        assert [wanted.session for wanted in placing.seen] == ["s1", ""]
        newest = await store.allocations.sample("run", 1)
        assert newest == [Wanted("http://host/1", "host")]
        assert (await store.allocations.sample("run", 10))[1].session == "s1"


class ChainPromises:
    async def _chain(self, store: Store, children: int = 3) -> int:
        """Agent a has downloaded the first request and found some; returns the first id."""
        await new_run(store, placement=CHAINED)
        await store.allocations.allocate("run", ["a", "b"], NOW)
        await store.requests.accept("run", [row(0)], NOW)
        await packed_by(store, ByNumber())
        first = await done_by(store, "a")
        found = [row(100 + n, parent=first) for n in range(children)]
        await store.requests.accept("run", found, NOW)
        return first

    async def test_what_is_found_belongs_to_who_found_it(self, store: Store) -> None:
        """C6: children and grandchildren; without a known parent they belong to no agent."""
        await self._chain(store)
        await store.requests.accept("run", [row(7, parent=2**40)], NOW)
        assert sorted(await packed_by(store, ByNumber())) == [("a", 3), ("b", 1)]
        assert await store.allocations.belonging("run", "a") == 3
        assert await store.allocations.belonging("run", "b") == 0
        (mine,) = [ref for ref in await store.blocks.claimable(10) if ref.target == "a"]
        (block,) = await lease(store, [mine], "a")
        assert await store.allocations.belonging("run", "a") == 3
        await settle(store, settlement(block, done(ids(block)), agent="a"))
        assert await store.allocations.belonging("run", "a") == 0
        await store.requests.accept("run", [row(201, parent=ids(block)[0])], NOW)
        assert await packed_by(store, ByNumber()) == [("a", 1)]

    async def test_places_count_in_chained_runs_alone(self, store: Store) -> None:
        await new_run(store, "run")
        await store.requests.accept("run", [row(0), row(1, parent=1)], NOW)
        assert [ref.target for ref in await pack(store)] == [""]

    async def test_a_chain_begins_again_elsewhere(self, store: Store) -> None:
        """C6: agent b downloads the first request again, then the open requests follow."""
        first = await self._chain(store)
        assert await store.allocations.restart_chains("run", "a", "b", NOW) == 1
        assert await store.allocations.restart_chains("run", "a", "b", NOW) == 0
        assert (await ledger(store)).accepted == 5
        assert await packed_by(store, ByNumber()) == [("b", 1)]
        assert (await ledger(store)).delayed == 3, "the rest waits for it"
        assert await store.allocations.rejoin("run") == []
        again = await done_by(store, "b")
        assert again != first
        assert await store.allocations.rejoin("run") == []
        await store.requests.wake(NOW + 60, 100)
        assert await packed_by(store, ByNumber()) == [("b", 3)]

    async def test_a_chain_that_cannot_begin_again_is_told(self, store: Store) -> None:
        """C6: its first request also died on the other agent."""
        await self._chain(store)
        await store.allocations.restart_chains("run", "a", "b", NOW)
        await packed_by(store, ByNumber())
        (block,) = await lease(store, await _ready(store), "b")
        await settle(store, settlement(block, failed(ids(block)), agent="b"))
        assert await store.allocations.rejoin("run") == ids(block)
