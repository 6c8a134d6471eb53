"""Conformance tests of a store for the scope of a caller. Part of `StoreConformance`."""

from __future__ import annotations

from msgspec.structs import replace

from skep.model.delivery import Delivery
from skep.model.dispatch import DispatchRow
from skep.model.failures.dead_requests import FailureFilter, RequestFilter
from skep.model.filter.checked import CheckedFilter
from skep.model.filter.scoped import within
from skep.model.jobs.generator_progress import part_of
from skep.model.jobs.job import Job
from skep.model.logs import LogSource, LogSourceKind
from skep.model.people.scope import Scope
from skep.model.request import Outcome
from skep.model.run import Run, RunSettings
from skep.model.states import RunState
from skep.store.ports import Store
from skep.store.ports.logs import PieceSelection, PiecesInside
from skep.testing.conformance.store.ground import NOW, rows
from skep.testing.conformance.store.leasing import lease, pack
from skep.testing.conformance.store.log_pieces import piece
from skep.testing.conformance.store.reports import ids, settle, settlement
from skep.testing.conformance.store.retention import notice
from skep.testing.conformance.store.schedules import claimed, fire, planned

SCOPE = Scope(("team=a",))
#: Name and labels of the run and the job in each world. Databases that ignore case, spaces at the
#: end or the meaning of `_` would mix them up.
INSIDE = ("m_ine", {"team": "a", "other": "b"})
OUTSIDE: tuple[tuple[str, dict[str, str]], ...] = (
    ("mXine", {"team": "A"}),
    ("m_in", {"team": "a "}),
    ("m_ine_too", {"TEAM": "a"}),
    ("plain", {}),
)


async def build(store: Store) -> None:
    """Runs, jobs and their records, in every world."""
    for name, labels in (INSIDE, *OUTSIDE):
        run = Run(name, name, RunState.RUNNING, RunSettings(), NOW, labels=labels)
        assert await store.runs.create(run)
        await store.jobs.save(Job(name=name, labels=labels), None, "test", NOW)
        for job in (name, part_of(name, "hourly")):
            await claimed(store, fire(job))
            await store.fires.plan(planned(job))
        await store.deliveries.open([Delivery(name, "s", name, "redis://s")], NOW)
        await store.dispatches.add([DispatchRow(NOW, "success", name, name, "mid", "")])
        await fail_one(store, name)
        await end(store, name)


async def fail_one(store: Store, run: str) -> None:
    """A dead request and one that is done."""
    await store.requests.accept(run, rows(2), NOW)
    (block,) = await lease(store, await pack(store, run))
    first, second = ids(block)
    outcomes = [Outcome(first, failure="network", detail="x"), Outcome(second, status=200)]
    assert await settle(store, settlement(block, outcomes)) == ["stored"]


async def end(store: Store, run: str) -> None:
    await store.runs.move(run, RunState.FAILED, "it broke", NOW)
    (ending,) = [one for one in await store.notices.endings(100) if one.run == run]
    await store.notices.post(ending.id, [replace(notice(f"msg {run}"), run=run, job=run)])
    await store.runs.move(run, RunState.CANCELLED, "", NOW)


class ScopePromises:
    async def test_every_list_finds_and_counts_only_what_is_inside(self, store: Store) -> None:
        """P4: requests, dispatches, deliveries and notices by their run, fires and schedules by
        their job."""
        await build(store)
        expected = dict.fromkeys(("runs", "jobs", "dispatches", "deliveries", "notices"), 1)
        expected |= {"requests": 2, "fires": 2, "schedules": 2}
        for resource, count in expected.items():
            every = CheckedFilter(resource, (), NOW)
            found = await store.lists.find(within(every, SCOPE), None, 100, counted=True)
            assert (len(found.items), found.count) == (count, count), resource
            assert all("m_ine" in str(one) for one in found.items), resource
            assert not any("m_ine_too" in str(one) for one in found.items), resource
            without = await store.lists.find(every, None, 100)
            assert len(without.items) == 5 * count, resource

    async def test_pages_of_what_is_inside_are_whole(self, store: Store) -> None:
        await build(store)
        wanted = within(CheckedFilter("requests", (), NOW), SCOPE)
        first = await store.lists.find(wanted, None, 1, counted=True)
        second = await store.lists.find(wanted, first.next, 1)
        assert (first.count, len(first.items), len(second.items)) == (2, 1, 1)
        assert second.next is None

    async def test_failures_are_those_of_runs_inside(self, store: Store) -> None:
        """P4: groups, counts and requests; a filter cannot reach further."""
        await build(store)
        failures = store.failures
        (group,) = await failures.groups(FailureFilter(), 10, SCOPE)
        assert (group.requests, await failures.count(FailureFilter(), SCOPE)) == (1, 1)
        (dead,) = await failures.find(FailureFilter(), 0, 10, SCOPE)
        assert dead.run == "m_ine"
        assert await failures.find(FailureFilter(run="plain"), 0, 10, SCOPE) == []
        assert await failures.count_requests(RequestFilter(), SCOPE) == 2
        found = await failures.requests(RequestFilter(), 0, 100, SCOPE)
        assert {one.run for one in found} == {"m_ine"}
        assert await failures.count(FailureFilter()) == 5

    async def test_log_pieces_are_those_of_runs_and_agents_inside(self, store: Store) -> None:
        """R4: a line of a run outside stays outside, whatever its agent; so do those of centers."""
        await build(store)
        kind = LogSourceKind.APP
        sources = [
            LogSource(kind, "1", "m_ine", "theirs"),
            LogSource(kind, "2", "", "mine"),
            LogSource(kind, "3", "mXine", "mine"),
            LogSource(kind, "4", "", "theirs"),
            LogSource(kind, "5", "gone", "mine"),
            LogSource(LogSourceKind.CENTER, "6"),
        ]
        await store.logs.add([piece(of=one) for one in sources], NOW)
        moment = await store.logs.moment()
        only = PieceSelection(inside=PiecesInside(SCOPE, ("mine",)))
        newest = await store.logs.newest(only, moment, None, 100)
        arrived = await store.logs.arrived(only, 0, moment, moment)
        for found in (newest, arrived):
            assert sorted(one.source.name for one in found) == ["1", "2"]
        none = PieceSelection(inside=PiecesInside(SCOPE))
        (of_run,) = await store.logs.newest(none, moment, None, 100)
        assert of_run.source.name == "1"
