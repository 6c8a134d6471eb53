"""The step of a center: one leads, alerts start and end once, notices are posted once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import msgspec
import pytest

from skep.fleet.roster import Roster
from skep.model.fleet.agent import Registration, Vitals
from skep.model.jobs.notice import Notice
from skep.model.monitoring.alerts import AlertRule
from skep.model.monitoring.failure_groups import GroupQuery
from skep.model.monitoring.run_summary import RunSummary
from skep.model.monitoring.series import DISK, LANES_FILL
from skep.model.states import RunState
from skep.monitoring.alerting import Alerting, AlertNotices
from skep.monitoring.collector import Collector
from skep.monitoring.measures import Measures
from skep.monitoring.monitor import LEASE, LEASE_SECONDS, Monitor, MonitorParts
from skep.monitoring.run_judge import RunJudge, fill_rates
from skep.settings import CenterSettings, MonitoringSettings, NoticeSettings
from skep.store.sql.store import SqlStore
from skep.testing.clock import ManualClock
from skep.testing.conformance.monitoring.store import die
from skep.testing.conformance.store.ground import new_run
from skep.testing.doubles.counted_reports import report

NOTICES = NoticeSettings(webhooks=("https://hooks.example.org/x",), mails=("ops@example.org",))


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqlStore]:
    opened = SqlStore(f"sqlite:///{tmp_path / 'skep.db'}")
    await opened.open()
    yield opened
    await opened.close()


class Ground:
    """One center's monitoring on a store, with levels that a test sets."""

    def __init__(
        self,
        store: SqlStore,
        clock: ManualClock,
        name: str = "c1",
        notices: NoticeSettings = NOTICES,
    ) -> None:
        self.store, self.clock = store, clock
        self.roster = Roster(CenterSettings(), store, clock, ())
        self.collector = Collector(store.monitoring.series, clock, name, 20)
        self.levels: dict[tuple[str, str], float] = {}
        parts = MonitorParts(
            self.collector,
            Alerting(store, Measures(store, self.roster, clock)),
            AlertNotices(store, notices),
            RunJudge(store),
            lambda: None,
            self._sample,
        )
        self.monitor = Monitor(name, MonitoringSettings(), store, clock, parts)

    async def _sample(self) -> None:
        for (name, label), value in self.levels.items():
            self.collector.level(name, label, value)

    async def steps(self, count: int = 1) -> None:
        for _ in range(count):
            await self.monitor.step()
            self.clock.advance(10)

    async def firing(self) -> list[tuple[str, str]]:
        found = await self.store.monitoring.alerts.find(["firing"], 100)
        return [(one.kind, one.subject) for one in found]

    async def notices(self) -> list[Notice]:
        return await self.store.notices.recent(1000)


@pytest.fixture
def ground(store: SqlStore, clock: ManualClock) -> Ground:
    return Ground(store, clock)


async def failing(ground: Ground, seconds: int, failed: int = 9) -> None:
    for _ in range(seconds // 10):
        one, result = report("shop-1", 10 - failed, failed)
        ground.collector.reported([one], [result])
        await ground.steps()


async def test_a_failure_rate_fires_once_ends_once_and_is_told(ground: Ground) -> None:
    await failing(ground, 250)
    assert await ground.firing() == [], "not before its duration"
    await failing(ground, 120)
    assert await ground.firing() == [("failure_rate", "shop-1")]
    assert len(await ground.notices()) == 2, "one webhook, one mail"
    await failing(ground, 600)
    assert len(await ground.notices()) == 2
    await failing(ground, 900, failed=0)
    assert await ground.firing() == []
    told = await ground.notices()
    assert len(told) == 4
    kinds = sorted(msgspec.json.decode(one.body)["type"] for one in told)
    assert kinds == ["alert.firing"] * 2 + ["alert.resolved"] * 2


async def test_a_successor_neither_repeats_nor_forgets(store: SqlStore, clock: ManualClock) -> None:
    first, second = Ground(store, clock, "c1"), Ground(store, clock, "c2")
    await failing(first, 400)
    assert await first.firing() == [("failure_rate", "shop-1")]
    assert not await second.monitor.step(), "the first one leads"
    clock.advance(LEASE_SECONDS + 1)
    assert await second.monitor.step()
    assert not await first.monitor.step(), "it was paused and lost its lease"
    assert len(await first.notices()) == 2
    await second.steps(60)
    assert await first.firing() == [], "the successor ends what its predecessor started"
    assert len(await first.notices()) == 4


async def test_two_centers_at_once_tell_once(store: SqlStore, clock: ManualClock) -> None:
    both = [Ground(store, clock, "c1"), Ground(store, clock, "c2")]
    await store.alerts.raise_("archive_lost", "c1", "gone", clock.now())
    for _ in range(5):
        await asyncio.gather(*(one.monitor.step() for one in both))
        clock.advance(10)
    assert len(await both[0].notices()) == 2


async def test_a_center_that_dies_after_the_change_is_told_for(ground: Ground) -> None:
    """The change is stored, and the center is killed before it posts notices."""
    now = ground.clock.now()
    lease = await ground.store.monitoring.lease(LEASE, "dead", now, now + 1)
    assert lease is not None
    await ground.store.alerts.raise_("disk_full", "c9", "full", now)
    ground.clock.advance(60)
    await ground.steps(3)
    assert len(await ground.notices()) == 2


async def test_alerts_of_one_kind_are_one_notice(ground: Ground) -> None:
    for number in range(30):
        await ground.store.alerts.raise_("agent_gone", f"run-{number}", "gone", ground.clock.now())
    await ground.steps()
    first, _ = await ground.notices()
    assert len(msgspec.json.decode(first.body)["data"]["alerts"]) == 30


async def test_a_muted_alert_and_a_report_are_not_told(ground: Ground) -> None:
    now = ground.clock.now()
    await ground.store.alerts.raise_("disk_full", "c1", "full", now)
    await ground.store.monitoring.alerts.mute("disk_full", "c1", now + 1000)
    await ground.store.alerts.raise_("retention", "c1", "3 runs deleted", now)
    await ground.steps(2)
    assert await ground.notices() == []


async def test_notices_of_alerts_can_be_off(store: SqlStore, clock: ManualClock) -> None:
    ground = Ground(store, clock, notices=msgspec.structs.replace(NOTICES, alerts=False))
    await store.alerts.raise_("disk_full", "c1", "full", clock.now())
    await ground.steps(2)
    assert await ground.notices() == []


async def test_a_full_lane_in_normal_work_is_no_alert(ground: Ground) -> None:
    """U12: a lane that agents drain may be full for hours."""
    ground.levels = {(LANES_FILL, "mid"): 1.0}
    for _ in range(200):
        ground.collector.leased(1)
        await ground.steps()
    assert await ground.firing() == []
    await ground.steps(100)
    assert await ground.firing() == [("lane_stuck", "mid")]
    ground.collector.leased(1)
    await ground.steps(5)
    assert await ground.firing() == []


async def test_a_disk_that_fills_up(ground: Ground) -> None:
    ground.levels = {(DISK, "c1"): 1e9}
    await ground.steps(10)
    assert await ground.firing() == [("disk_free", "c1")]
    ground.levels = {(DISK, "c1"): 2.5 * 2**30}
    await ground.steps(10)
    assert await ground.firing() == [("disk_free", "c1")], "between the two limits it stays"
    ground.levels = {(DISK, "c1"): 1e12}
    await ground.steps(10)
    assert await ground.firing() == []


async def test_a_dead_agent(ground: Ground) -> None:
    await ground.store.agents.register(Registration("a1", "one"), ground.clock.now())
    await ground.store.agents.heartbeat([("a1", Vitals())], ground.clock.now())
    for _ in range(40):
        await ground.roster.refresh()
        await ground.steps()
    assert await ground.firing() == [("dead_agent", "a1")]
    await ground.store.agents.heartbeat([("a1", Vitals())], ground.clock.now())
    await ground.roster.refresh()
    await ground.steps(2)
    assert await ground.firing() == []


async def test_rules_of_users_and_rules_that_go(ground: Ground) -> None:
    rules = ground.store.monitoring.rules
    slow = AlertRule("series", 5.0, series="requests.accepted", window=60)
    await rules.save("much", slow, 10, 0)
    await rules.save("lane_stuck", AlertRule("lane_stuck", 1.0, enabled=False), 10, 0)
    ground.levels = {(LANES_FILL, "mid"): 1.0}
    for _ in range(100):
        ground.collector.accepted(100)
        await ground.steps()
    assert await ground.firing() == [("much", "requests.accepted")]
    await rules.delete("much")
    await ground.steps()
    assert await ground.firing() == []


@pytest.mark.parametrize("jump", [-7200.0, 7200.0, 10.0**7])
async def test_a_clock_that_is_set_raises_no_alert(ground: Ground, jump: float) -> None:
    await failing(ground, 200)
    ground.clock.set_wall(ground.clock.now() + jump)
    await failing(ground, 50)
    assert await ground.firing() == []


async def finished(ground: Ground, number: int, items: int, run: str = "") -> None:
    """A finished run of a job, with its summary as if it had items."""
    name = run or f"shop-{number}"
    await new_run(ground.store, name)
    await ground.store.runs.move(name, RunState.FINISHED, now=ground.clock.now())
    now = ground.clock.now()
    lease = await ground.store.monitoring.lease(LEASE, "c1", now, now + 30)
    assert lease is not None
    if not run:
        summary = RunSummary(name, "job", now, answers=10, items=items)
        await ground.store.monitoring.summaries.judge(lease, name, summary, "")
    ground.clock.advance(3600)


async def test_a_silent_failure_is_an_alert_of_its_job(ground: Ground) -> None:
    for number in range(8):
        await finished(ground, number, 1000 + number)
    await finished(ground, 9, 0, run="empty")
    await ground.steps(2)
    assert await ground.firing() == [("silent_failure", "job")]
    (alert,) = await ground.store.monitoring.alerts.find([], 10)
    assert alert.detail == "run empty: 0 items, usually 1004"
    assert await ground.store.monitoring.summaries.unjudged(10) == []


async def test_a_failure_that_returns_is_reopened_and_told(ground: Ground) -> None:
    await die(ground.store, 3, at=ground.clock.now())
    await ground.steps()
    (group,) = await ground.store.monitoring.groups.find(GroupQuery())
    groups = ground.store.monitoring.groups
    await groups.change(group.group, "resolved", "fixed", "ops", ground.clock.now())
    await ground.steps(3)
    assert await ground.firing() == []
    await die(ground.store, 1, start=50, at=ground.clock.now())
    await ground.steps(2)
    assert await ground.firing() == [("failure_returned", group.group)]
    assert len(await ground.notices()) == 2
    successor = Ground(ground.store, ground.clock, "c2")
    ground.clock.advance(60)
    await successor.steps(2)
    assert await ground.firing() == [("failure_returned", group.group)], "it stays for a successor"
    await groups.change(group.group, "ignored", None, "ops", ground.clock.now())
    assert await ground.firing() == []


def test_fill_rates_of_strange_items() -> None:
    pack = msgspec.msgpack.encode
    sample = [pack({"a": 1, "b": ""}), pack({"a": None, "b": 0}), pack([1]), b"\xc1", pack({1: 2})]
    assert fill_rates(sample) == {"a": 0.2, "b": 0.2, "1": 0.2}
    assert fill_rates([]) == {}
    many = [pack({f"f{n}" * 50: 1 for n in range(5000)})]
    assert len(fill_rates(many)) == 100


async def test_everything_old_goes(ground: Ground) -> None:
    rng = Random(3)
    for _ in range(120):
        one, result = report(f"run-{rng.randrange(5)}", 3)
        ground.collector.reported([one], [result])
        await ground.steps()
    ground.clock.advance(3 * 86_400)
    await ground.steps(2)
    series = ground.store.monitoring.series
    assert len(await series.recent(10, 0, 10_000)) <= 2
    assert len(await series.recent(60, 0, 10_000)) <= 2
    coarse = await series.read(600, "", 0, 2**40, 100)
    assert sum(row.cells["requests.done"][""][0] for row in coarse if row.cells) == 360
