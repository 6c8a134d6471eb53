"""Conformance tests of a store for schedules and fires. Part of `StoreConformance`."""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec.structs import replace

from skep.model.jobs.fire import Fire, FireState, Planned, Step, key_of_due
from skep.model.jobs.schedule import Overlap, Schedule
from skep.store.ports import Store
from skep.testing.conformance.store.ground import NOW

DUE = int(NOW) + 60
EACH_MINUTE = Schedule(cron="* * * * *", zone="Europe/Berlin", exclude=("sat",))


def planned(job: str = "job", schedule: Schedule = EACH_MINUTE, **facts: Any) -> Planned:
    return Planned(job, schedule, **{"decided": int(NOW), "next_at": float(DUE), **facts})


def fire(job: str = "job", due: int = DUE, **facts: Any) -> Fire:
    claimed = Fire(job, key_of_due(due), due, FireState.CLAIMED, "", "", "c1", 1, NOW + 60.25)
    return replace(claimed, **facts)


async def claimed(store: Store, *fires: Fire, schedule: Schedule = EACH_MINUTE) -> list[Fire]:
    """Each claimed in the ledger, by a step of its job."""
    jobs = sorted({one.job for one in fires})
    for job in jobs:
        await store.fires.plan(planned(job, schedule))
    steps = [
        Step(found, DUE, DUE + 60.0, tuple(one for one in fires if one.job == found.job))
        for found in await store.fires.planned(jobs)
    ]
    return await store.fires.claim(steps)


class SchedulePromises:
    async def test_a_schedule_comes_back_as_it_was(self, store: Store) -> None:
        assert await store.fires.plan(planned())
        (found,) = await store.fires.planned()
        assert found == planned(version=found.version)
        assert await store.fires.planned(["job", "ghost"]) == [found]
        assert await store.fires.planned(["JOB"]) == []

    async def test_the_same_schedule_again_changes_nothing(self, store: Store) -> None:
        """A job that is applied again loses no undecided due time."""
        await store.fires.plan(planned())
        assert not await store.fires.plan(planned(decided=DUE + 600, next_at=DUE + 660.0))
        (found,) = await store.fires.planned()
        assert (found.decided, found.next_at) == (int(NOW), float(DUE))

    async def test_another_schedule_begins_anew(self, store: Store) -> None:
        await store.fires.plan(planned())
        (old,) = await store.fires.planned()
        other = planned(schedule=Schedule(every=5), decided=DUE, next_at=DUE + 5.0)
        assert await store.fires.plan(other)
        assert await store.fires.planned() == [replace(other, version=old.version + 1)]
        assert await store.fires.claim([Step(old, DUE, None, (fire(),))]) == [], "it is void"
        assert await store.fires.of_job("job", 10) == []

    async def test_what_is_due_comes_longest_waiting_first(self, store: Store) -> None:
        for job, at in (("b", NOW + 3), ("a", NOW + 3), ("c", NOW + 1), ("d", NOW + 9)):
            await store.fires.plan(planned(job, next_at=at))
        await store.fires.plan(planned("never", Schedule(after=("a",)), next_at=None))
        assert [one.job for one in await store.fires.due(NOW + 3, 10)] == ["c", "a", "b"]
        assert [one.job for one in await store.fires.due(NOW + 3, 1)] == ["c"]

    async def test_taking_a_schedule_away_ends_its_queue(self, store: Store) -> None:
        queued = fire(due=DUE - 1, state=FireState.QUEUED)
        await claimed(store, fire(), queued)
        assert await store.fires.unplan("job", NOW + 70)
        assert not await store.fires.unplan("job", NOW + 71)
        assert await store.fires.planned() == []
        open_one, ended = await store.fires.of_job("job", 10)
        assert open_one == fire(), "its run may have been opened"
        assert (ended.state, ended.ended_at) == (FireState.SKIPPED, NOW + 70)
        assert "deleted" in ended.reason

    async def test_many_plan_at_once(self, store: Store, other_store: Store) -> None:
        calls = [
            center.fires.plan(planned(f"j{n % 3}", Schedule(every=n // 3 + 1, after=("up",))))
            for center in (store, other_store)
            for n in range(12)
        ]
        await asyncio.gather(*calls)
        assert [one.job for one in await store.fires.planned()] == ["j0", "j1", "j2"]
        assert await store.fires.succeeded("up", "run", NOW) == 3


class FirePromises:
    async def test_a_step_moves_its_schedule_on(self, store: Store) -> None:
        skipped = fire(due=DUE - 60, state=FireState.SKIPPED, reason="hé", ended_at=NOW + 60.5)
        assert await claimed(store, skipped, fire()) == [skipped, fire()]
        (found,) = await store.fires.planned()
        assert (found.decided, found.next_at) == (DUE, DUE + 60.0)
        assert await store.fires.of_job("job", 10) == [fire(), skipped]
        assert await store.fires.of_job("job", 10, before=DUE) == [skipped]
        assert await store.fires.of_job("ghost", 10) == []

    async def test_many_centers_put_a_due_time_there_once(
        self, store: Store, other_store: Store
    ) -> None:
        """Fault 32: (job, due time) is unique without a leader."""
        for number in range(20):
            await store.fires.plan(planned(f"j{number:02}"))
        found = await store.fires.planned()

        async def rush(center: Store, name: str) -> list[Fire]:
            steps = [Step(p, DUE, DUE + 60.0, (fire(p.job, center=name),)) for p in found]
            return await center.fires.claim(steps)

        won = await asyncio.gather(
            *(rush(c, f"c{n}") for n, c in enumerate((store, other_store) * 4))
        )
        assert sorted(one.job for part in won for one in part) == [p.job for p in found]
        for part in won:
            for one in part:
                assert await store.fires.of_job(one.job, 10) == [one]

    async def test_what_is_in_the_ledger_stays(self, store: Store) -> None:
        """The wall clock was set back and the schedule was changed: the due time repeats."""
        await claimed(store, fire())
        await store.fires.plan(planned(schedule=Schedule(every=60)))
        (again,) = await store.fires.planned()
        late = fire(due=DUE + 60, center="c2")
        step = Step(again, DUE + 60, None, (fire(center="c2"), late))
        assert await store.fires.claim([step]) == [late]
        assert await store.fires.of_job("job", 10) == [late, fire()]

    async def test_a_change_needs_the_newest_token(self, store: Store) -> None:
        await claimed(store, fire())
        mine = replace(fire(), center="c2", token=2, claimed_at=NOW + 99.125)
        assert await store.fires.change([(fire(), mine)]) == [mine]
        ended = replace(fire(), state=FireState.FIRED, run="r", ended_at=NOW + 100)
        assert await store.fires.change([(fire(), ended)]) == [], "its claim was taken over"
        done = replace(mine, state=FireState.LATE, run="r", reason="x" * 500, ended_at=NOW + 100)
        assert await store.fires.change([(mine, done), (fire("ghost"), done)]) == [done]
        assert await store.fires.change([(mine, ended)]) == [], "an outcome is final"
        assert await store.fires.of_job("job", 10) == [done]

    async def test_one_of_many_takes_over(self, store: Store, other_store: Store) -> None:
        many = [fire(f"j{number}") for number in range(10)]
        await claimed(store, *many)

        async def take(center: Store, name: str) -> list[Fire]:
            return await center.fires.change(
                [(one, replace(one, center=name, token=2)) for one in reversed(many)]
            )

        won = await asyncio.gather(
            *(take(c, f"c{n}") for n, c in enumerate((store, other_store) * 3))
        )
        assert sorted(one.job for part in won for one in part) == [one.job for one in many]

    async def test_fires_without_a_center_are_found(self, store: Store) -> None:
        stale = fire("a", due=DUE - 3, claimed_at=NOW)
        fresh = fire("b", due=DUE - 2, claimed_at=NOW + 95)
        future = fire("c", due=DUE - 1, claimed_at=NOW + 3600)
        queued = fire("d", state=FireState.QUEUED, claimed_at=NOW)
        ended = fire("e", state=FireState.FIRED, claimed_at=NOW)
        await claimed(store, stale, fresh, future, queued, ended)
        asked = Fire("f", "post:1", DUE - 9, FireState.DUE)
        await store.fires.add([asked])
        found = await store.fires.unattended(NOW + 100, 30.0, 10)
        assert found == [stale, future, asked, queued]
        assert await store.fires.unattended(NOW + 100, 30.0, 1) == [stale]
        assert await store.fires.pending(["a", "b", "e"]) == [stale, fresh]
        assert await store.fires.pending([]) == []

    async def test_a_success_is_due_for_its_followers_once(self, store: Store) -> None:
        """Job chains: B runs when A succeeded."""
        after_a = Schedule(after=("a", "z"), overlap=Overlap.QUEUE)
        for job in ("b", "c"):
            await store.fires.plan(planned(job, after_a, next_at=None))
        assert await store.fires.succeeded("a", "run-1", NOW) == 2
        assert await store.fires.succeeded("a", "run-1", NOW + 1) == 0
        assert await store.fires.succeeded("A", "run-1", NOW) == 0
        found = await store.fires.unattended(NOW, 30.0, 10)
        assert [(one.job, one.key, one.state) for one in found] == [
            ("b", "after:run-1", FireState.DUE),
            ("c", "after:run-1", FireState.DUE),
        ]
        await store.fires.plan(planned("b", Schedule(every=5)))
        await store.fires.unplan("c", NOW)
        assert await store.fires.succeeded("a", "run-2", NOW) == 0

    async def test_fires_that_no_clock_asked_for(self, store: Store) -> None:
        asked = Fire("job", "post:42", DUE, FireState.DUE, "asked for by ops")
        assert await store.fires.add([asked, replace(asked, key="post:43")]) == 2
        assert await store.fires.add([replace(asked, reason="again")]) == 0
        assert (await store.fires.unattended(NOW, 1.0, 1)) == [asked]

    async def test_the_ledger_is_bounded(self, store: Store) -> None:
        ended = [fire(due=DUE + n, state=FireState.FIRED) for n in range(5)]
        await claimed(store, fire(due=DUE - 1), *ended)
        assert await store.fires.forget(DUE + 3, 2) == 2
        assert await store.fires.forget(DUE + 3, 10) == 1
        left = [one.due_at for one in await store.fires.of_job("job", 10)]
        assert left == [DUE + 4, DUE + 3, DUE - 1], "what has no outcome stays"
