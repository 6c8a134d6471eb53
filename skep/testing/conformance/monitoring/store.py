"""What every store promises about series, alerts, failure groups and run summaries.

A part of `StoreConformance`.
"""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from skep.errors import Conflict, LostLease, NotFound
from skep.model.failures.dead_requests import FailureFilter
from skep.model.jobs.notice import Notice
from skep.model.monitoring.alerts import AlertChange, AlertRule
from skep.model.monitoring.failure_groups import GroupQuery
from skep.model.monitoring.run_summary import RunSummary
from skep.model.monitoring.series import DONE, HOSTS, LABELS, SeriesRow
from skep.model.states import RunState
from skep.store.ports import Store
from skep.store.ports.checkpoints import ItemRow
from skep.store.ports.monitoring import MonitorLease
from skep.testing.conformance.store.ground import NOW, new_run, rows
from skep.testing.conformance.store.leasing import lease, leased_one, pack
from skep.testing.conformance.store.reports import failed, ids, settle, settlement

STEPS = (60, 600)


def tile(at: int, n: float = 1.0, writer: str = "a.1", run: str = "") -> SeriesRow:
    return SeriesRow(10, at, run, writer, {DONE: {"": (n, 1)}})


async def take(store: Store, holder: str = "c1", now: float = NOW) -> MonitorLease:
    held = await store.monitoring.lease("monitor", holder, now, now + 30)
    assert held is not None
    return held


async def die(store: Store, count: int, start: int = 0, at: float = NOW) -> None:
    """Requests that die; the run is created for those that start at 0."""
    if not start:
        await new_run(store)
    await store.requests.accept("run", rows(count, start=start), NOW)
    (block,) = await lease(store, await pack(store, size=count))
    await settle(store, settlement(block, failed(ids(block))), now=at)


class MonitorLeasePromises:
    async def test_one_center_holds_the_lease(self, store: Store, other_store: Store) -> None:
        first = await take(store)
        assert await other_store.monitoring.lease("monitor", "c2", NOW + 1, NOW + 31) is None
        assert await take(store, now=NOW + 20) == first
        later = await take(other_store, "c2", NOW + 51)
        assert later.token > first.token
        for call in (
            store.monitoring.series.roll_up(first, STEPS, 10),
            store.monitoring.alerts.apply(first, [], NOW),
            store.monitoring.groups.follow(first, NOW, 10),
        ):
            with pytest.raises(LostLease):
                await call

    async def test_a_wrong_clock_does_not_hold_it_for_years(self, store: Store) -> None:
        await take(store, "c1", NOW + 1e8)
        assert await store.monitoring.lease("monitor", "c2", NOW, NOW + 30) is not None


class SeriesPromises:
    async def test_a_flush_is_stored_once(self, store: Store, other_store: Store) -> None:
        rows = [tile(1000), tile(1000, run="r")]
        calls = [center.monitoring.series.add(rows) for center in (store, other_store)]
        assert sorted(await asyncio.gather(*calls)) == [0, 2]
        assert await store.monitoring.series.add([]) == 0
        assert await store.monitoring.series.read(10, "", 1000, 1010, 10) == rows[:1]
        assert await store.monitoring.series.read(10, "r", 0, 1000, 10) == []
        assert len(await store.monitoring.series.recent(10, 1000, 10)) == 2

    async def test_rows_of_all_centers_add_up_once(self, store: Store, other_store: Store) -> None:
        series = store.monitoring.series
        held = await take(store)
        for n in range(60):
            await series.add(
                [tile(1200 + 10 * n, 1.0, f"a.{n}"), tile(1200 + 10 * n, 2.0, f"b.{n}")]
            )
        while await series.roll_up(held, STEPS, 25):
            pass
        late = tile(1205, 5.0, "late.1")
        await other_store.monitoring.series.add([late])
        await series.roll_up(held, STEPS, 25)
        assert await series.roll_up(held, STEPS, 25) == 0
        minutes = await series.read(60, "", 0, 10_000, 100)
        assert [row.cells[DONE][""][0] for row in minutes] == [23.0, *[18.0] * 9]
        (coarse,) = await series.read(600, "", 0, 10_000, 100)
        assert (coarse.at, coarse.cells[DONE][""]) == (1200, (185.0, 121))

    async def test_labels_stay_bounded_in_the_sum(self, store: Store) -> None:
        held = await take(store)
        for n in range(5):
            cells = {HOSTS: {f"h{n}-{number}": (1.0, 1) for number in range(LABELS)}}
            await store.monitoring.series.add([SeriesRow(10, 1200, "", f"a.{n}", cells)])
        await store.monitoring.series.roll_up(held, STEPS, 100)
        (row,) = await store.monitoring.series.read(60, "", 0, 10_000, 10)
        assert len(row.cells[HOSTS]) == LABELS + 1
        assert sum(n for n, _ in row.cells[HOSTS].values()) == 5 * LABELS

    async def test_old_rows_go_and_new_ones_stay(self, store: Store) -> None:
        series, held = store.monitoring.series, await take(store)
        await series.add([tile(10 * n, 1.0, f"a.{n}") for n in range(20)])
        ages = [(10, 150)]
        assert await series.trim(held, ages, 1000, 100) == 0, "none is rolled up"
        await series.roll_up(held, STEPS, 100)
        assert await series.trim(held, ages, 1000, 3) == 3
        assert await series.trim(held, ages, 1000, 100) == 12
        assert await series.trim(held, [(10, 0)], 2, 100) == 2
        assert [row.at for row in await series.read(10, "", 0, 1000, 100)] == [170, 180, 190]


class AlertStatePromises:
    async def test_rules(self, store: Store) -> None:
        rules = store.monitoring.rules
        assert await rules.all() == {}
        one, two = AlertRule("failure_rate", 0.5), AlertRule("disk_free", 1e9, "below")
        await rules.save("b", one, 2, NOW)
        await rules.save("a", one, 2, NOW)
        await rules.save("a", two, 2, NOW)
        assert await rules.all() == {"a": two, "b": one}
        with pytest.raises(Conflict, match="2 alert rules"):
            await rules.save("c", one, 2, NOW)
        assert await rules.delete("a")
        assert not await rules.delete("a")

    async def test_a_state_changes_once(self, store: Store, other_store: Store) -> None:
        held, states = await take(store), store.monitoring.alerts
        fires = AlertChange("failure_rate", "shop", "firing", "80%", "critical")
        assert await states.apply(held, [fires], NOW) == 1
        assert await other_store.monitoring.alerts.apply(held, [fires], NOW + 1) == 0
        (alert,) = await states.untold(10)
        assert (alert.state, alert.severity, alert.by_rule, alert.changes) == (
            *("firing", "critical", True, 1),
        )
        assert await states.apply(held, [AlertChange("x", "y", "resolved", "")], NOW) == 0
        over = msgspec.structs.replace(fires, state="resolved", detail="1%")
        assert await states.apply(held, [over], NOW + 2) == 1
        (alert,) = await states.find(["resolved"], 10)
        assert (alert.detail, alert.changes, alert.last_at) == ("1%", 2, NOW + 2)
        assert await states.find(["firing"], 10) == []

    async def test_a_change_is_told_once(self, store: Store) -> None:
        held, states = await take(store), store.monitoring.alerts
        await states.apply(held, [AlertChange("k", "s", "firing", "d")], NOW)
        alerts = await states.untold(10)
        notice = Notice("msg_1", "", "k", "webhook", "http://h/", "", b"{}", "waiting", 0, NOW, NOW)
        await states.apply(held, [AlertChange("k", "s", "resolved", "d")], NOW + 1)
        await states.tell(held, alerts, [notice])
        (still,) = await states.untold(10)
        assert still.state == "resolved", "a change that came meanwhile is told later"
        await states.tell(held, [still], [notice])
        assert await states.untold(10) == []
        assert [one.id for one in await store.notices.recent(10)] == ["msg_1"]

    async def test_acknowledge_and_mute(self, store: Store) -> None:
        states = store.monitoring.alerts
        await store.alerts.raise_("disk_full", "c1", "full", NOW)
        found = await states.acknowledge("disk_full", "c1", "zoë", NOW + 1)
        assert (found.shown_state(NOW), found.acknowledged_by) == ("acknowledged", "zoë")
        found = await states.mute("disk_full", "c1", NOW + 10)
        assert (found.shown_state(NOW), found.shown_state(NOW + 11)) == ("muted", "acknowledged")
        for call in (states.acknowledge("disk_full", "x", "", NOW), states.mute("x", "c1", NOW)):
            with pytest.raises(NotFound):
                await call

    async def test_events_end_after_a_while_and_start_again(self, store: Store) -> None:
        held, states = await take(store), store.monitoring.alerts
        await store.alerts.raise_("agent_gone", "a1", "gone", NOW)
        await states.tell(held, await states.untold(10), [])
        assert await states.expire(held, NOW, 0) == 0
        assert await states.expire(held, NOW + 1, 0) == 1
        assert await states.untold(10) == []
        await store.alerts.raise_("agent_gone", "a1", "gone", NOW + 5)
        (again,) = await states.untold(10)
        assert (again.state, again.changes, again.times) == ("firing", 2, 2)
        await states.apply(held, [AlertChange("agent_gone", "a1", "resolved", "")], NOW + 6)
        assert await states.expire(held, 0, NOW + 7) == 1
        assert await states.find([], 10) == []

    async def test_reports_are_not_told(self, store: Store) -> None:
        await store.alerts.raise_("retention", "c1", "3 runs", NOW)
        await store.alerts.raise_("notice_failed", "job", "404", NOW)
        assert await store.monitoring.alerts.untold(10) == []
        assert len(await store.monitoring.alerts.find([], 10)) == 2


class FailureGroupPromises:
    async def test_deaths_are_counted_in_rows(self, store: Store) -> None:
        groups, held = store.monitoring.groups, await take(store)
        await die(store, 3)
        await die(store, 2, start=10, at=NOW + 7200)
        (group,) = await groups.find(GroupQuery())
        (counted,) = await store.failures.groups(FailureFilter(), 10)
        assert (group.group, group.died, group.dead) == (counted.group, 5, counted.requests)
        assert (group.first_at, group.last_at, group.state) == (NOW, NOW + 7200, "open")
        assert (group.text, group.failure) == (counted.text, counted.failure)
        assert await groups.follow(held, NOW + 8000, 10) == (1, [])
        assert await groups.follow(held, NOW + 8000, 10) == (0, [])
        _, history = await groups.get(group.group)
        assert sum(history.hours.values()) == sum(history.days.values()) == 5

    async def test_retried_and_deleted_requests_are_not_dead(self, store: Store) -> None:
        await die(store, 4)
        found = await store.failures.find(FailureFilter(), 0, 10)
        ids = [one.id for one in found]
        await store.failures.act("retry", ids[:1], NOW + 9)
        await store.failures.act("cancel", ids[1:2], NOW + 9)
        await store.failures.act("retry", ids[:2], NOW + 9)
        (group,) = await store.monitoring.groups.find(GroupQuery())
        assert (group.died, group.dead) == (4, 2)
        await store.runs.move("run", RunState.CANCELLED, now=NOW)
        await store.failures.act("forget", ids, NOW + 9)
        (group,) = await store.monitoring.groups.find(GroupQuery())
        assert (group.died, group.dead) == (4, 0)

    async def test_a_resolved_group_returns_and_alerts(self, store: Store) -> None:
        groups, held = store.monitoring.groups, await take(store)
        await die(store, 2)
        (group,) = await groups.find(GroupQuery())
        kept = await groups.change(group.group, "resolved", "fixed", "zoë", NOW + 1)
        assert (kept.state, kept.note, kept.changed_by) == ("resolved", "fixed", "zoë")
        assert await groups.follow(held, NOW + 2, 10) == (0, [])
        for turn in (1, 2):
            await die(store, 1, start=10 * turn, at=NOW + 10 * turn)
            _, [back] = await groups.follow(held, NOW + 10 * turn, 10)
            assert (back.group, back.died) == (group.group, 2 + turn)
            (alert,) = await store.monitoring.alerts.untold(10)
            assert (alert.kind, alert.state) == ("failure_returned", "firing")
            await store.monitoring.alerts.tell(held, [alert], [])
            kept, _ = await groups.get(group.group)
            assert (kept.state, kept.note, kept.reopened) == ("open", "fixed", turn)
            await groups.change(group.group, "resolved", None, "", NOW + 10 * turn + 1)

    async def test_an_ignored_group_stays_ignored(self, store: Store) -> None:
        groups, held = store.monitoring.groups, await take(store)
        await die(store, 1)
        (group,) = await groups.find(GroupQuery())
        await groups.change(group.group, "ignored", "", "", NOW)
        await die(store, 1, start=5)
        assert await groups.follow(held, NOW, 10) == (1, [])
        assert [one.state for one in await groups.find(GroupQuery("ignored"))] == ["ignored"]
        assert await groups.find(GroupQuery("open")) == []
        with pytest.raises(NotFound):
            await groups.change("0@nowhere", "ignored", "", "", NOW)

    async def test_groups_are_bounded(self, store: Store) -> None:
        groups, held = store.monitoring.groups, await take(store)
        await die(store, 1)
        (first,) = await groups.find(GroupQuery())
        assert await groups.trim(held, 10, NOW, 10) == 0
        assert await groups.trim(held, 0, NOW, 10) == 1
        (other,) = await groups.find(GroupQuery())
        assert (other.host, other.died, other.first_at) == ("*", 1, first.first_at)
        assert await groups.trim(held, 0, NOW, 10) == 0
        await die(store, 1, start=3, at=NOW + 5)
        assert await groups.trim(held, 0, NOW, 10) == 1
        (other,) = await groups.find(GroupQuery())
        assert (other.died, other.last_at) == (2, NOW + 5)


class RunSummaryPromises:
    async def test_finished_runs_are_judged_once(self, store: Store) -> None:
        summaries, held = store.monitoring.summaries, await take(store)
        await new_run(store)
        await new_run(store, "other")
        await store.runs.move("run", RunState.FINISHED, now=NOW)
        await store.runs.move("other", RunState.CANCELLED, now=NOW)
        (ended,) = await summaries.unjudged(10)
        assert (ended.run, ended.job, ended.ended_at) == ("run", "job", NOW)
        summary = RunSummary("run", "job", NOW, items=3, fields={"é": 0.5})
        assert await summaries.judge(held, "run", summary, "")
        assert not await summaries.judge(held, "run", summary, "")
        assert await summaries.unjudged(10) == []
        assert await summaries.history("job", NOW + 1, 10) == [summary]
        assert await summaries.history("job", NOW, 10) == []
        await store.runs.move("run", RunState.RUNNING, now=NOW + 1)
        await store.runs.move("run", RunState.FINISHED, now=NOW + 2)
        assert [one.ended_at for one in await summaries.unjudged(10)] == [NOW + 2]
        await summaries.judge(held, "run", None, "")
        assert await summaries.forget(held, NOW + 3, 10) == 1

    async def test_items_are_sampled_from_all_parts(self, store: Store) -> None:
        await new_run(store)
        driver = await store.checkpoints.take_over("run")
        made = [ItemRow(n, 0, msgspec.msgpack.encode({"n": n})) for n in range(1, 201)]
        await store.checkpoints.checkpoint("run", driver, [], made, [], NOW)
        found = await store.monitoring.summaries.items("run", 50)
        assert found.items == 200
        numbers = sorted(msgspec.msgpack.decode(one)["n"] for one in found.sample)
        assert len(numbers) == 50
        assert numbers[-1] > 180


class WatchPromises:
    async def test_a_run_without_answers_is_stale(self, store: Store) -> None:
        block = await leased_one(store, 2)
        watches = store.monitoring.watches
        assert await watches.stale_runs(NOW + 60, 10) == [], "it is new"
        (stale,) = await watches.stale_runs(NOW + 300, 10)
        assert (stale.run, stale.job, stale.open) == ("run", "job", 2)
        await settle(store, settlement(block, failed(ids(block)[:1]), final=False), now=NOW + 290)
        assert await watches.stale_runs(NOW + 300, 10) == []
        assert len(await watches.stale_runs(NOW + 900, 10)) == 1
        await store.runs.move("run", RunState.PAUSED, now=NOW)
        assert await watches.stale_runs(NOW + 900, 10) == []
        assert await watches.late_jobs(NOW, 10) == []
