"""Conformance tests of a store for generators. Part of `StoreConformance`."""

from __future__ import annotations

import asyncio

import pytest

from skep.errors import Conflict, StaleToken
from skep.model.jobs.generator_progress import Counts, Generation, GenerationState, Taken, Window
from skep.model.states import RunState
from skep.store.ports import Store
from skep.testing.conformance.store.ground import NOW, new_run, rows

NEW = Generation("run", 0, "zoë's", "python")


class GeneratorPromises:
    async def test_a_generator_begins_and_ends(self, store: Store) -> None:
        """Counts are stored with the requests, in one transaction."""
        await new_run(store)
        begun = await store.generations.begin(NEW)
        assert (begun.starts, begun.state) == (1, GenerationState.RUNNING)
        counts = Counts(6, 1, 0.5, "x\0 is not a URL")
        assert await store.generations.take(begun, rows(5), counts, None, NOW) == Taken(5)
        assert await store.generations.take(begun, rows(5), counts, None, NOW) == Taken(0)
        (one,) = await store.generations.of("run")
        assert (one.yielded, one.taken, one.bad, one.seconds) == (6, 5, 1, 0.5)
        assert one.detail == "x\ufffd is not a URL"
        assert (await store.ledgers.read("run")).accepted == 5
        assert await store.generations.end(begun, GenerationState.DONE, "", Counts(7, 2, 1.0))
        done = await store.generations.begin(NEW)
        assert (done.state, done.starts, done.yielded, done.taken) == ("done", 1, 7, 5)

    async def test_who_speaks_for_an_older_beginning_is_not_heard(self, store: Store) -> None:
        """Two centers may try to feed a run: only the newer one succeeds."""
        await new_run(store)
        old = await store.generations.begin(NEW)
        await store.generations.take(old, rows(3), Counts(3), None, NOW)
        young = await store.generations.begin(NEW)
        assert (young.starts, young.taken) == (2, 3)
        with pytest.raises(StaleToken):
            await store.generations.take(old, rows(9), Counts(9), None, NOW)
        assert not await store.generations.end(old, GenerationState.FAILED, "", Counts())
        assert (await store.ledgers.read("run")).accepted == 3, "nothing of it was taken"
        assert await store.generations.take(young, rows(9), Counts(9), None, NOW) == Taken(6)
        (one,) = await store.generations.of("run")
        assert (one.state, one.taken, one.known) == ("running", 9, 0)

    async def test_a_generator_adds_nothing_to_a_run_that_has_ended(self, store: Store) -> None:
        await new_run(store)
        begun = await store.generations.begin(NEW)
        await store.runs.move("run", RunState.CANCELLED)
        with pytest.raises(Conflict):
            await store.generations.take(begun, rows(1), Counts(1), Window("j", NOW + 9), NOW)
        assert await store.generations.forget(NOW + 100, 10) == 0, "no URI is stored either"

    async def test_a_window_over_runs(self, store: Store) -> None:
        """Within the window a URI belongs to the first run; after it the next run may use it."""
        for name in ("one", "two", "three"):
            await new_run(store, name)
        window = Window("job", NOW + 100)

        async def take(run: str, count: int, window: Window, now: float = NOW) -> Taken:
            begun = await store.generations.begin(Generation(run, 0, "g", "list"))
            return await store.generations.take(begun, rows(count), Counts(count), window, now)

        assert await take("one", 5, window) == Taken(5, 0)
        assert await take("one", 5, window) == Taken(0, 0), "its own, after a restart"
        assert await take("two", 7, window) == Taken(2, 5)
        assert await take("three", 7, Window("other", NOW + 100)) == Taken(7, 0)
        late = Window("job", NOW + 300)
        assert await take("two", 7, late, NOW + 200) == Taken(5, 0)
        assert await store.generations.forget(NOW + 200, 1000) == 7, "those of the other job"
        assert await store.generations.forget(NOW + 400, 1000) == 7

    async def test_a_race_for_the_same_uris(self, store: Store, other_store: Store) -> None:
        """C9: two runs on two centers concurrently: each URI is accepted once."""
        centers = {"one": store, "two": other_store}
        for name in centers:
            await new_run(store, name)
        window = Window("job", NOW + 100)

        async def take(run: str) -> int:
            generations = centers[run].generations
            begun = await generations.begin(Generation(run, 0, "g", "list"))
            taken = 0
            for start in range(0, 500, 50):
                batch = rows(50, start=start if run == "one" else 450 - start)
                taken += (await generations.take(begun, batch, Counts(), window, NOW)).new
            return taken

        assert sum(await asyncio.gather(*map(take, centers))) == 500
        accepted = [(await store.ledgers.read(name)).accepted for name in centers]
        assert sum(accepted) == 500
