"""Conformance tests for deletions, segments, ends of runs, notices. Part of the store's suite."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import sqlalchemy as sa

from skep.errors import Unavailable
from skep.model.jobs.notice import Notice
from skep.model.ledger import Ledger
from skep.model.request import Outcome
from skep.model.retention import KINDS, KeepKind
from skep.model.states import RunState
from skep.store.ports import Store
from skep.store.ports.blocks import Placed
from skep.testing.conformance.store.ground import NOW, ledger, new_run
from skep.testing.conformance.store.leasing import leased_one
from skep.testing.conformance.store.reports import ids, settle, settlement

SEGMENT = "center-00000001.warc.zst"
START = (0.0, 0)


async def archived(store: Store, run: str, count: int = 5, segment: str = SEGMENT) -> list[int]:
    """A finished run whose requests have ten bytes each in a segment."""
    block = await leased_one(store, count, run)
    numbers = ids(block)
    outcomes = [Outcome(n, status=200, offset=10 * i, length=10) for i, n in enumerate(numbers)]
    frames = bytes(10 * count)
    report = settlement(block, outcomes, frames=frames, placed=Placed(segment, 100))
    assert await settle(store, report) == ["stored"]
    await store.runs.move(run, RunState.FINISHED, "", NOW)
    return numbers


async def forget_all(store: Store, kind: KeepKind, run: int, limit: int = 2) -> int:
    total = 0
    for _ in range(100):
        count, done = await store.retention.forget(kind, run, NOW, limit)
        total += count
        if done:
            return total
    raise AssertionError("it never ends")


class RetentionPromises:
    async def test_ended_runs_are_listed_oldest_first(self, store: Store) -> None:
        """D8: by age; an active run is never included."""
        await archived(store, "one")
        await archived(store, "two", 3)
        await new_run(store, "open")
        for kind, size in zip(KINDS, (50, 1500, 3000), strict=True):
            found = await store.retention.ended(kind, NOW + 1, START, 10)
            assert [(run.id, run.ended_at) for run in found] == [("one", NOW), ("two", NOW)]
            assert found[0].volume == size
            assert await store.retention.volumes(kind) == {"job": size * 8 // 5}
            after = (found[0].ended_at, found[0].no)
            assert [r.id for r in await store.retention.ended(kind, NOW + 1, after, 10)] == ["two"]
            assert await store.retention.ended(kind, NOW, START, 10) == []

    async def test_rows_are_deleted_and_stay_counted(self, store: Store) -> None:
        """D8: the ledger of a run is the same before and after."""
        await archived(store, "gone")
        numbers = await archived(store, "kept")
        run = (await store.retention.ended("rows", NOW + 1, START, 1))[0].no
        assert await forget_all(store, "rows", run) == 5
        assert await ledger(store, "gone") == Ledger(accepted=5, done=5, forgotten=5)
        assert await ledger(store, None) == Ledger(accepted=10, done=10, forgotten=5)
        assert [r.id for r in await store.retention.ended("rows", NOW + 1, START, 9)] == ["kept"]
        assert len(await store.requests.attempts(numbers[0])) == 1
        assert await store.blocks.finished("gone", 10) == []
        (what,) = await store.retention.deleted()
        assert (what.kind, what.runs, what.n, what.last_at) == ("rows", 1, 5, NOW)

    async def test_spans_of_deleted_rows_are_deleted(self, store: Any) -> None:
        """Lists: what bounds their search does not grow for longer than the requests do."""

        async def spans() -> int:
            query = sa.text("SELECT COUNT(*) FROM request_spans")
            return int(await store.database.read(lambda c: c.execute(query).scalar()))

        await archived(store, "gone")
        move = "UPDATE request_spans SET number = 1 WHERE kind > 0"
        await store.database.write(lambda tx: tx.sql(move))
        await archived(store, "kept")
        assert await spans() == 4
        run = (await store.retention.ended("rows", NOW + 1, START, 1))[0].no
        await forget_all(store, "rows", run)
        assert await spans() == 2
        assert await store.checks.find("spans", "", 10) == ([], "")

    async def test_logs_go_and_requests_stay(self, store: Store) -> None:
        numbers = await archived(store, "run")
        (run,) = await store.retention.ended("logs", NOW + 1, START, 9)
        assert await forget_all(store, "logs", run.no) >= 5
        assert await store.requests.attempts(numbers[0]) == []
        assert (await store.requests.get(numbers[0])).uri
        assert await store.retention.ended("logs", NOW + 1, START, 9) == []
        assert await store.retention.volumes("bodies") == {}

    async def test_a_run_that_goes_on_loses_nothing(self, store: Store) -> None:
        """No open request and no continued run is deleted."""
        numbers = await archived(store, "run")
        (run,) = await store.retention.ended("rows", NOW + 1, START, 9)
        await store.runs.move("run", RunState.RUNNING, "", NOW)
        for kind in KINDS:
            assert await store.retention.forget(kind, run.no, NOW, 10) == (0, True)
        assert len(await store.requests.attempts(numbers[0])) == 1
        await leased_one(store, 2, "busy")
        await store.runs.move("busy", RunState.FINISHED, "", NOW)
        (busy,) = await store.retention.ended("rows", NOW + 1, START, 9)
        assert await store.retention.forget("rows", busy.no, NOW, 10) == (0, True)
        assert (await ledger(store, "busy")).leased == 2

    async def test_a_segment_is_deleted_when_no_run_needs_it(self, store: Store) -> None:
        """Two runs share a segment: it is deleted with the second, in three steps."""
        await archived(store, "one")
        await archived(store, "two")
        one, two = await store.retention.ended("bodies", NOW + 1, START, 9)
        assert await forget_all(store, "bodies", one.no) == 50
        assert await store.retention.mark_segments(NOW, 10) == []
        assert await forget_all(store, "bodies", two.no) == 50
        assert await store.retention.mark_segments(NOW, 10) == [SEGMENT]
        assert await store.retention.mark_segments(NOW, 10) == []
        (row,) = await store.retention.marked_segments(10)
        assert (row.name, row.committed, row.deleted_at) == (SEGMENT, 150, NOW)
        await store.retention.segment_gone(SEGMENT)
        assert await store.retention.marked_segments(10) == []
        assert await store.segments.committed_end(SEGMENT) == 150

    async def test_no_report_points_into_a_deleted_segment(self, store: Store) -> None:
        """The bytes were stored before the segment was deleted: the agent sends again."""
        await archived(store, "one")
        (one,) = await store.retention.ended("bodies", NOW + 1, START, 9)
        await forget_all(store, "bodies", one.no)
        await store.retention.mark_segments(NOW, 10)
        block = await leased_one(store, 1, "late")
        outcomes = [Outcome(ids(block)[0], status=200, length=10)]
        late = settlement(block, outcomes, frames=bytes(10), placed=Placed(SEGMENT, 150))
        with pytest.raises(Unavailable):
            await settle(store, late)
        assert (await ledger(store, "late")).leased == 1
        again = settlement(block, outcomes, frames=bytes(10), placed=Placed("next", 10))
        assert await settle(store, again) == ["stored"]


def notice(name: str = "msg_1", due: float = NOW) -> Notice:
    body = b'{"type":"run.failed"}'
    return Notice(name, "run", "job", "webhook", "http://x/", "key", body, "waiting", 0, due, NOW)


class NoticePromises:
    async def test_an_end_of_a_run_becomes_notices_once(self, store: Store) -> None:
        """Issue 4.7: stored with the end itself, and sent by any center."""
        await new_run(store)
        await store.runs.move("run", RunState.PAUSED, "", NOW)
        await store.runs.move("run", RunState.FAILED, "it broke", NOW + 1)
        await store.runs.move("run", RunState.FAILED, "again", NOW + 2)
        (ending,) = await store.notices.endings(10)
        assert (ending.run, ending.state, ending.reason) == ("run", "failed", "it broke")
        assert await store.notices.post(ending.id, [notice("a"), notice("b")])
        assert not await store.notices.post(ending.id, [notice("c")])
        assert await store.notices.endings(10) == []
        assert {n.id for n in await store.notices.recent(10, "run")} == {"a", "b"}

    async def test_a_notice_is_tried_until_it_is_told(self, store: Store) -> None:
        await new_run(store)
        await store.runs.move("run", RunState.FINISHED, "", NOW)
        (ending,) = await store.notices.endings(1)
        await store.notices.post(ending.id, [notice()])
        assert await store.notices.take(NOW - 1, NOW, 10) == []
        (taken,) = await store.notices.take(NOW, NOW + 60, 10)
        assert taken == msgspec.structs.replace(notice(), tries=1, due_at=NOW + 60)
        assert await store.notices.take(NOW, NOW + 60, 10) == []
        await store.notices.failed(taken.id, "refused", NOW + 5)
        (again,) = await store.notices.take(NOW + 5, NOW + 65, 10)
        assert (again.tries, again.error) == (2, "refused")
        await store.notices.told(taken.id)
        assert await store.notices.take(NOW + 1000, NOW + 2000, 10) == []
        assert [(n.state, n.error) for n in await store.notices.recent(1)] == [("told", "")]
        assert await store.notices.forget_told(NOW + 1) == 1

    async def test_a_notice_is_given_up(self, store: Store) -> None:
        await new_run(store)
        await store.runs.move("run", RunState.CANCELLED, "", NOW)
        (ending,) = await store.notices.endings(1)
        await store.notices.post(ending.id, [notice()])
        await store.notices.failed("msg_1", "no such address", None)
        assert await store.notices.take(NOW + 1000, NOW + 2000, 10) == []
        assert (await store.notices.recent(1))[0].state == "given up"
