"""Conformance tests of a store for jobs and their runs. Part of `StoreConformance`."""

from __future__ import annotations

import asyncio

import pytest

from skep.errors import Conflict, LostLease, UnknownJob
from skep.model.jobs.app import AppSpec
from skep.model.jobs.generator_progress import Generation
from skep.model.jobs.job import Job, JobRun, RunLease
from skep.model.run import RunSettings
from skep.model.states import RunState
from skep.store.ports import Store
from skep.testing.conformance.store.ground import NOW, new_run, rows

ONE = Job("quotes", note="für Zoë", requests=("http://a/",))
TWO = Job("quotes", note="more", requests=("http://a/", "http://b/"))


def fired(run: str, key: str = "", job: str = "quotes", at: float = NOW) -> JobRun:
    return JobRun(run, job, key or f"key of {run}", 1, at)


class JobPromises:
    async def test_every_change_is_a_revision(self, store: Store) -> None:
        """D1, P3: revisions with author and time; the same document again changes nothing."""
        kept, what = await store.jobs.save(ONE, None, "zoë", NOW)
        assert (kept.job, kept.revision, what) == (ONE, 1, "created")
        kept, what = await store.jobs.save(ONE, None, "bob", NOW + 1)
        assert (kept.revision, kept.author, what) == (1, "zoë", "unchanged")
        kept, what = await store.jobs.save(TWO, 1, "bob", NOW + 2)
        assert (kept.job, kept.revision, kept.author, what) == (TWO, 2, "bob", "changed")
        assert (kept.created_at, kept.changed_at) == (NOW, NOW + 2)
        assert await store.jobs.get("quotes") == kept
        newest, first = await store.jobs.revisions("quotes", 10)
        assert (newest.revision, newest.what, newest.job) == (2, "changed", TWO)
        assert (first.revision, first.what, first.author, first.at) == (1, "created", "zoë", NOW)
        assert await store.jobs.revision("quotes", 1) == first
        assert len(await store.jobs.revisions("quotes", 1)) == 1

    async def test_a_stale_edit_is_refused(self, store: Store, other_store: Store) -> None:
        await store.jobs.save(ONE, 0, "a", NOW)
        with pytest.raises(Conflict, match="revision 1"):
            await store.jobs.save(TWO, 0, "b", NOW)
        edits = [
            center.jobs.save(Job("quotes", note=f"{n}"), 1, "c", NOW)
            for n, center in enumerate((store, other_store) * 4)
        ]
        results = await asyncio.gather(*edits, return_exceptions=True)
        assert sum(isinstance(result, tuple) for result in results) == 1
        assert sum(isinstance(result, Conflict) for result in results) == 7
        assert (await store.jobs.get("quotes")).revision == 2

    async def test_many_create_the_same_job_at_once(self, store: Store, other_store: Store) -> None:
        calls = [center.jobs.save(ONE, None, "a", NOW) for center in (store, other_store) * 5]
        words = [what for _, what in await asyncio.gather(*calls)]
        assert sorted(words) == ["created"] + ["unchanged"] * 9

    async def test_deleting_is_soft(self, store: Store) -> None:
        await store.jobs.save(ONE, None, "a", NOW)
        with pytest.raises(Conflict):
            await store.jobs.delete("quotes", 7, "b", NOW)
        gone = await store.jobs.delete("quotes", 1, "b", NOW + 1)
        assert (gone.deleted, gone.revision, gone.job) == (True, 2, ONE)
        assert await store.jobs.delete("quotes", None, "b", NOW + 2) == gone
        assert await store.jobs.all(10) == []
        assert [kept.deleted for kept in await store.jobs.all(10, deleted=True)] == [True]
        back, what = await store.jobs.save(ONE, None, "c", NOW + 3)
        assert (back.deleted, back.revision, what) == (False, 3, "changed")
        words = [line.what for line in await store.jobs.revisions("quotes", 10)]
        assert words == ["brought back", "deleted", "created"]

    async def test_jobs_come_by_name_page_by_page(self, store: Store) -> None:
        for name in ("b", "a", "C", "d"):
            await store.jobs.save(Job(name, enabled=name != "d"), None, "a", NOW)
        names = [kept.job.name for kept in await store.jobs.all(10)]
        assert sorted(names) == ["C", "a", "b", "d"]
        assert [kept.job.name for kept in await store.jobs.all(2)] == names[:2]
        assert [kept.job.name for kept in await store.jobs.all(9, names[1])] == names[2:]
        assert len(await store.jobs.all(9, enabled=True)) == 3

    async def test_an_unknown_job_is_named(self, store: Store) -> None:
        for call in (
            store.jobs.get("ghost"),
            store.jobs.delete("ghost", None, "a", NOW),
            store.jobs.revisions("ghost", 1),
            store.jobs.revision("ghost", 1),
            store.jobs.save(Job("ghost"), 3, "a", NOW),
        ):
            with pytest.raises(UnknownJob, match="ghost"):
                await call


class JobRunPromises:
    async def test_the_same_key_is_the_same_run(self, store: Store, other_store: Store) -> None:
        """C8: two starts with one key are one run, over all centers."""
        calls = [
            center.job_runs.begin(fired(f"r{n}", "monday"))
            for n, center in enumerate((store, other_store) * 5)
        ]
        assert len({kept.run for kept in await asyncio.gather(*calls)}) == 1
        assert len(await store.job_runs.of("quotes", 10)) == 1
        other = await store.job_runs.begin(fired("other", "monday", job="other"))
        assert other.run == "other", "a key belongs to its job"
        assert await store.job_runs.get("other") == other
        assert await store.job_runs.get("ghost") is None
        assert await store.job_runs.fired("other", "monday") == other
        assert await store.job_runs.fired("other", "tuesday") is None
        going = await store.job_runs.going(["other", "idle"])
        assert going == {"other": ["other"]}
        assert await store.job_runs.going([]) == {}

    async def test_a_run_that_has_failed_is_open_and_does_not_go_on(self, store: Store) -> None:
        """P3: it waits for a user, and does not block a due time."""
        for run in ("broken", "well"):
            await new_run(store, run)
            await store.job_runs.begin(fired(run, run))
        await store.job_runs.begin(fired("unopened", "unopened"))
        await store.runs.move("broken", RunState.FAILED, "no such table")
        every = await store.job_runs.going(["quotes"])
        assert set(every["quotes"]) == {"broken", "well", "unopened"}
        for parts in (False, True):
            going = await store.job_runs.going(["quotes"], parts=parts, failed=False)
            assert set(going["quotes"]) == {"well", "unopened"}

    async def test_a_run_has_one_holder(self, store: Store, other_store: Store) -> None:
        for n in range(12):
            await store.job_runs.begin(fired(f"r{n}", at=NOW + n))
        claims = [
            center.job_runs.claim(f"c{n}", NOW, NOW + 10, 4)
            for n, center in enumerate((store, other_store) * 3)
        ]
        claimed = await asyncio.gather(*claims)
        held = [job_run.run for claim in claimed for job_run in claim]
        assert len(held) == len(set(held)) == 12
        assert await store.job_runs.claim("late", NOW + 5, NOW + 15, 100) == []
        again = await store.job_runs.claim("late", NOW + 10.5, NOW + 20, 100)
        assert len(again) == 12, "their leases have expired"
        old = next(one for claim in claimed for one in claim if one.run == "r0")
        assert not await store.job_runs.note(old.proof, fed=True)
        assert await store.job_runs.claim("c0", NOW + 11, NOW + 21, 100) == []

    async def test_what_is_held_is_renewed(self, store: Store) -> None:
        await store.job_runs.begin(fired("r"))
        await store.job_runs.claim("a", NOW, NOW + 10, 5)
        (mine,) = await store.job_runs.claim("a", NOW + 9, NOW + 19, 5)
        assert (mine.holder, mine.held_until) == ("a", NOW + 19)
        assert await store.job_runs.claim("b", NOW + 15, NOW + 25, 5) == []
        assert await store.job_runs.note(mine.proof, fed=True, starts=3, log="ö", outcome="?")
        kept = await store.job_runs.get("r")
        assert kept is not None
        assert (kept.fed, kept.starts, kept.log, kept.outcome) == (True, 3, "ö", "?")
        await store.job_runs.release("a", RunLease("other", "a", mine.lease))
        assert await store.job_runs.claim("b", NOW + 15, NOW + 25, 5) == []
        await store.job_runs.release("a")
        assert [r.run for r in await store.job_runs.claim("b", NOW + 15, NOW + 25, 5)] == ["r"]

    async def test_ended_and_resting_runs_are_left_alone(self, store: Store) -> None:
        for name in ("ended", "paused", "open"):
            await store.job_runs.begin(fired(name))
        await new_run(store, "paused")
        await store.runs.move("paused", RunState.PAUSED)
        held = await store.job_runs.claim("a", NOW, NOW + 10, 5)
        assert {job_run.run for job_run in held} == {"ended", "open"}
        ended = next(job_run.proof for job_run in held if job_run.run == "ended")
        assert await store.job_runs.note(ended, open=False, outcome="finished")
        assert not await store.job_runs.note(ended, open=True)
        assert not await store.job_runs.holds(ended)
        (left,) = await store.job_runs.claim("a", NOW, NOW + 10, 5)
        assert left.run == "open"
        assert len(await store.job_runs.of("quotes", 10, only_open=True)) == 2
        await store.runs.move("paused", RunState.RUNNING)
        assert len(await store.job_runs.claim("a", NOW, NOW + 10, 5)) == 2

    async def test_a_lease_that_was_lost_changes_nothing(self, store: Store) -> None:
        """E2: every write of a center that has lost a run is refused, also when the center has
        leased the run again since."""
        await new_run(store, "r")
        await store.job_runs.begin(fired("r"))
        (first,) = await store.job_runs.claim("a", NOW, NOW + 10, 5)
        (renewed,) = await store.job_runs.claim("a", NOW + 5, NOW + 15, 5)
        assert renewed.lease == first.lease == 1
        (second,) = await store.job_runs.claim("b", NOW + 16, NOW + 20, 5)
        (third,) = await store.job_runs.claim("a", NOW + 21, NOW + 30, 5)
        assert (second.lease, third.lease) == (2, 3)
        for lost in (first.proof, second.proof, RunLease("ghost", "a", 1)):
            assert not await store.job_runs.holds(lost)
            assert not await store.job_runs.note(lost, starts=9)
            with pytest.raises(LostLease, match=lost.run):
                await store.runs.move("r", RunState.FAILED, "it is not mine", NOW, lost)
            with pytest.raises(LostLease):
                await store.generations.begin(Generation("r", 0, "list", "list"), lost)
            with pytest.raises(LostLease):
                await store.apps.create("r", AppSpec(), {}, ["agent"], NOW, lost)
            await store.job_runs.release(lost.holder, lost)
        assert await store.job_runs.get("r") == third
        assert (await store.runs.get("r")).state is RunState.RUNNING
        moved = await store.runs.move("r", RunState.FINISHED, "", NOW, third.proof)
        assert moved.state is RunState.FINISHED

    async def test_settings_change_until_there_are_requests(self, store: Store) -> None:
        await new_run(store, "r", retries=1)
        assert await store.job_runs.adjust("r", RunSettings(retries=7))
        assert (await store.runs.get("r")).settings.retries == 7
        await store.requests.accept("r", rows(1), NOW)
        assert not await store.job_runs.adjust("r", RunSettings(retries=9))
        assert not await store.job_runs.adjust("ghost", RunSettings())
        assert (await store.runs.get("r")).settings.retries == 7
