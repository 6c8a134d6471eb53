"""Items of runs into sinks: over outages, restarts and several centers, on a real Redis."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from redis import asyncio as aioredis

from skep.errors import ConfigurationError
from skep.jobs.runs.delivery import Deliverer
from skep.jobs.runs.delivery_writer import BATCH
from skep.model.delivery import DeliveryState, DeliveryView, sink_key, url_key
from skep.model.jobs.job import Job, JobRun, SinkPart, SpiderPart
from skep.model.run import Run, RunSettings
from skep.model.states import RunState
from skep.runtime.clock import SystemClock
from skep.settings import JobsSettings
from skep.store.ports.checkpoints import ItemRow
from skep.store.sql.store import SqlStore
from skep.streams.sink_writer import SinkWriter
from skep.testing import servers
from skep.testing.polling import until

SETTINGS = JobsSettings(deliver_first=0.05, deliver_cap=0.2, deliver_wait=0.5, lease_seconds=1.0)
SECONDS = 60.0


class Ground:
    """A run of a job with sinks, its items, and centers that deliver them."""

    def __init__(self, store: SqlStore, folder: Path) -> None:
        self.store, self.folder = store, folder
        self.clock = SystemClock()
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.centers: dict[str, Deliverer] = {}
        self.held: JobRun | None = None
        self.sinks: tuple[SinkPart, ...] = ()

    async def begin(self, *urls: str) -> JobRun:
        self.sinks = tuple(SinkPart(url) for url in urls)
        job = Job("crawl", spider=SpiderPart("crawl.py"), sinks=self.sinks)
        await self.store.jobs.save(job, None, "test", self.clock.now())
        now = self.clock.now()
        await self.store.runs.create(Run("r", "crawl", RunState.RUNNING, RunSettings(), now))
        new = JobRun("r", "crawl", "once", 1, now, holder="a", held_until=now + 1, lease=1)
        self.held = await self.store.job_runs.begin(new)
        self.driver = await self.store.checkpoints.take_over("r")
        return self.held

    async def add(self, count: int, start: int = 0) -> None:
        numbers = range(start, start + count)
        rows = [ItemRow(0, n, msgspec.msgpack.encode({"n": n})) for n in numbers]
        await self.store.checkpoints.checkpoint("r", self.driver, [], rows, [], self.clock.now())

    async def end(self) -> None:
        await self.store.runs.move("r", RunState.FINISHED, "", self.clock.now())

    def center(self, name: str, settings: JobsSettings = SETTINGS) -> Deliverer:
        data = self.folder / name
        made = Deliverer(name, settings, self.store, data, None, self.clock, Random(1))
        self.centers[name] = made
        self.tasks[name] = asyncio.create_task(self._loop(made))
        return made

    async def _loop(self, deliverer: Deliverer) -> None:
        while True:
            await deliverer.step()
            await deliverer.wake_up.wait(0.05)

    async def stop(self, name: str) -> None:
        await self.freeze(name)
        await self.centers.pop(name).stop()

    async def freeze(self, name: str) -> None:
        """It claims nothing any more; what it writes just now goes on."""
        task = self.tasks.pop(name)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def view(self) -> DeliveryView:
        (view,) = await self.store.deliveries.of("r")
        return view

    async def until(self, look: Callable[[DeliveryView], Any]) -> DeliveryView:
        found = await until(
            lambda: self.store.deliveries.of("r"),
            lambda views: views and look(views[0]),
            seconds=SECONDS,
        )
        return found[0]

    async def until_state(self, state: DeliveryState) -> DeliveryView:
        return await self.until(lambda view: view.delivery.state is state)


@pytest.fixture
async def ground(store_url: str, tmp_path: Path) -> AsyncIterator[Ground]:
    store = SqlStore(store_url)
    await store.open()
    made = Ground(store, tmp_path)
    try:
        yield made
    finally:
        for name in list(made.tasks):
            await made.stop(name)
        await store.close()


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[servers.Redis]:
    """One that tests may kill."""
    with servers.redis(tmp_path / "redis") as server:
        yield server


async def in_list(url: str, name: str = "items") -> list[int]:
    client = aioredis.Redis.from_url(url)
    try:
        found = await client.lrange(name, 0, -1)
        return [json.loads(line)["n"] for line in found]
    finally:
        await client.aclose()


async def test_items_that_a_sink_missed_reach_it_when_it_is_back(
    ground: Ground, own_redis: servers.Redis
) -> None:
    """E4: the sink is away when the run ends. The end of the run says what is left, delivery
    goes on over a restart of the center and succeeds when the sink is back."""
    url = f"{own_redis.url}?list=items"
    held = await ground.begin(url)
    await asyncio.to_thread(own_redis.kill)
    first = ground.center("a")
    await first.open(held, ground.sinks)
    await ground.add(2500)
    await ground.end()
    told = await first.settle(held)
    assert told.startswith("2500 items not delivered yet to redis://"), told
    view = await ground.until(lambda view: view.delivery.tries > 1)
    assert (view.pending, view.delivery.state) == (2500, DeliveryState.OPEN)
    assert "redis" in view.delivery.error
    (shown,) = await ground.store.deliveries.unfinished(10)
    assert shown.delivery.run == "r"
    alerts = [alert["detail"] for alert in await ground.store.alerts.recent(10)]
    assert any("skep data deliveries r" in detail for detail in alerts)
    await ground.stop("a")
    ground.center("b")
    await asyncio.to_thread(own_redis.start)
    done = await ground.until_state(DeliveryState.DONE)
    assert (done.pending, done.delivery.delivered, done.delivery.error) == (0, 2500, "")
    assert await in_list(own_redis.url) == list(range(2500))
    assert await ground.store.deliveries.unfinished(10) == []


async def test_another_center_goes_on_where_the_first_one_stopped(
    ground: Ground, redis_url: str
) -> None:
    """E5: positions are in the store; after a take-over nothing that was saved is repeated."""
    held = await ground.begin(f"{redis_url}?list=items")
    first = ground.center("a")
    await first.open(held, ground.sinks)
    await ground.add(1500)
    await ground.until(lambda view: view.delivery.delivered == 1500)
    await ground.freeze("a")
    await ground.add(700, start=1500)
    second = ground.center("b")
    await ground.until(lambda view: view.delivery.holder == "b")
    await ground.end()
    assert await second.settle(held) == ""
    found = await in_list(redis_url)
    assert sorted(set(found)) == list(range(2200))
    assert len(found) - 2200 <= BATCH


async def test_a_delivery_that_is_given_up_stops_on_every_center(
    ground: Ground, own_redis: servers.Redis
) -> None:
    """E4: given up by a person while a center delivers, and after a take-over; a retry goes on
    from where it was."""
    held = await ground.begin(f"{own_redis.url}?list=items")
    first = ground.center("a")
    await first.open(held, ground.sinks)
    await ground.add(10)
    await ground.until(lambda view: view.delivery.delivered == 10)
    given = await ground.store.deliveries.decide(
        "r", "", DeliveryState.GIVEN_UP, ground.clock.now()
    )
    assert [one.state for one in given] == [DeliveryState.GIVEN_UP]
    await ground.add(5, start=10)
    await ground.end()
    assert await first.settle(held) == "", "nothing that is given up holds up the run"
    await ground.stop("a")
    second = ground.center("b")
    await second.open(held, ground.sinks)
    await asyncio.sleep(0.3)
    view = await ground.view()
    assert (view.delivery.state, view.pending) == (DeliveryState.GIVEN_UP, 5)
    await ground.store.deliveries.decide("r", "", DeliveryState.OPEN, ground.clock.now())
    await ground.until_state(DeliveryState.DONE)
    assert await in_list(own_redis.url) == list(range(15))


async def test_a_delivery_that_is_lost_closes_its_sink(
    ground: Ground, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E4: steps of the center that follow do not interrupt it, however long it takes."""
    close, closed = SinkWriter.close, []

    async def slow(pump: SinkWriter) -> None:
        await asyncio.sleep(0.3)  # several steps of the center
        await close(pump)
        closed.append(pump)

    monkeypatch.setattr(SinkWriter, "close", slow)
    held = await ground.begin(f"{redis_url}?list=items")
    await ground.center("a").open(held, ground.sinks)
    await ground.add(10)
    await ground.until(lambda view: view.delivery.delivered == 10)
    await ground.store.deliveries.decide("r", "", DeliveryState.GIVEN_UP, ground.clock.now())
    await until(lambda: closed, seconds=SECONDS)


async def test_a_paused_run_gives_its_sink_what_it_has(ground: Ground, redis_url: str) -> None:
    """E4: a run that rests lets go of its sink, and takes it up again when it goes on."""
    held = await ground.begin(f"{redis_url}?list=items")
    center = ground.center("a")
    await center.open(held, ground.sinks)
    await ground.add(3)
    await ground.store.runs.move("r", RunState.PAUSED, "", ground.clock.now())
    resting = await ground.until(lambda view: view.delivery.again_at > 0)
    assert (resting.delivery.delivered, resting.delivery.holder) == (3, "")
    await ground.store.runs.move("r", RunState.RUNNING, "", ground.clock.now())
    await center.open(held, ground.sinks)
    await ground.add(3, start=3)
    await ground.until(lambda view: view.delivery.delivered == 6)
    await ground.end()
    assert await center.settle(held) == ""
    assert await in_list(redis_url) == list(range(6))


@pytest.mark.parametrize("url", ["redis", "jsonl", "sqlite"])
async def test_refused_items_are_kept_and_sent_again(
    ground: Ground, redis_url: str, url: str
) -> None:
    """E11: what a sink refuses is a dead letter: listed, and sent again on demand, once."""
    data = ground.folder / "a" / "items"
    place = {
        "redis": f"{redis_url}?hash=items&key=n",
        "jsonl": "jsonl:items.jsonl",
        "sqlite": "sqlite:items.db?table=items&key=n",
    }[url]
    held = await ground.begin(place)
    center = ground.center("a")
    await center.open(held, ground.sinks)
    await ground.add(3)
    delivery = (await ground.until(lambda view: view.delivery.delivered == 3)).delivery
    for item in await ground.store.checkpoints.items("r", 0, 2):
        await ground.store.deliveries.reject(delivery.proof, item.id, "no such field", 1.0)
    first, second = await ground.store.deliveries.rejected("r", 0, 10)
    assert (first.reason, first.tries, first.ticket) == ("no such field", 1, 0)
    assert await ground.store.deliveries.rejected("r", first.no, 10) == [second]
    assert (await ground.view()).rejected == 2
    resend = ground.store.deliveries.resend
    assert await resend("r", "", [first.no], ground.clock.now()) == 1
    await ground.until(lambda view: view.rejected == 1)
    await ground.end()
    await center.settle(held)
    await ground.until_state(DeliveryState.DONE)
    assert await resend("r", "", [], ground.clock.now()) == 1
    assert await resend("r", "", [], ground.clock.now()) == 0, "it is under way"
    center.look("r")
    await ground.until(lambda view: not view.rejected)
    await ground.until_state(DeliveryState.DONE)
    if url == "jsonl":
        text = (data / "items.jsonl").read_text()
        lines = [json.loads(line)["n"] for line in text.splitlines()]
        assert sorted(lines) == [0, 0, 1, 1, 2]


async def test_an_item_that_its_sink_refuses_is_kept(ground: Ground, redis_url: str) -> None:
    """E11: the refusal of a sink makes a dead letter beside the alert; the others are delivered,
    and a letter that is refused again stays."""
    held = await ground.begin(f"{redis_url}?hash=items&key=n")
    center = ground.center("a")
    await center.open(held, ground.sinks)
    wrong = ItemRow(0, 9, msgspec.msgpack.encode({"name": "without n"}))
    now = ground.clock.now()
    await ground.store.checkpoints.checkpoint("r", ground.driver, [], [wrong], [], now)
    await ground.add(3)
    await ground.until(lambda view: view.delivery.delivered == 3)
    (letter,) = await ground.store.deliveries.rejected("r", 0, 10)
    (item, *_) = await ground.store.checkpoints.items("r", 0, 1)
    assert (letter.item, letter.tries) == (item.id, 1)
    assert "'n'" in letter.reason
    alerts = await ground.store.alerts.recent(10)
    assert any("see `skep data rejected r`" in alert["detail"] for alert in alerts)
    assert await ground.store.deliveries.resend("r", "", [], ground.clock.now()) == 1
    center.look("r")
    again = await until(
        lambda: ground.store.deliveries.rejected("r", 0, 10),
        lambda found: found and found[0].tries == 2,
    )
    assert [one.item for one in again] == [item.id]


async def test_position_files_of_earlier_versions_are_moved_into_the_store(
    ground: Ground, redis_url: str
) -> None:
    """E5: a file is read once; delivery goes on from it, and the file of a `skep run` stays."""
    url = f"{redis_url}?list=items"
    held = await ground.begin(url)
    await ground.add(10)
    fifth = (await ground.store.checkpoints.items("r", 0, 5))[-1].id
    folder = ground.folder / "a" / "outputs"
    folder.mkdir(parents=True)
    mine, other = folder / f"r-{url_key(url)}.position", folder / f"x-{url_key(url)}.position"
    broken = folder / f"r-{url_key('jsonl:b')}.position"
    for file in (mine, other):
        file.write_text(json.dumps({"position": fifth}))
    broken.write_text("milk, bread")
    center = ground.center("a")
    await ground.until(lambda view: view.delivery.delivered == 5)
    assert not mine.exists()
    assert other.exists()
    await center.open(held, ground.sinks)
    await ground.end()
    assert await center.settle(held) == ""
    assert await in_list(redis_url) == [5, 6, 7, 8, 9]


async def test_a_closed_run_with_a_position_file_waits_for_a_person(
    ground: Ground, redis_url: str
) -> None:
    """E4, E5: items that an earlier version never delivered are shown, not sent by surprise."""
    url = f"{redis_url}?list=items"
    held = await ground.begin(url)
    await ground.add(4)
    await ground.end()
    assert await ground.store.job_runs.note(held.proof, open=False)
    folder = ground.folder / "a" / "outputs"
    folder.mkdir(parents=True)
    (folder / f"r-{url_key(url)}.position").write_text('{"position": 0}')
    ground.center("a")
    view = await ground.until(bool)
    assert (view.delivery.state, view.pending) == (DeliveryState.GIVEN_UP, 4)
    await ground.store.deliveries.decide("r", "", DeliveryState.OPEN, ground.clock.now())
    await ground.until_state(DeliveryState.DONE)
    assert await in_list(redis_url) == [0, 1, 2, 3]


def test_sinks_with_other_options_are_other_sinks() -> None:
    """E5: one URL with two sets of options has two positions."""
    first, second = SinkPart("redis://h/0", {"list": "a"}), SinkPart("redis://h/0", {"list": "b"})
    assert sink_key(first) != sink_key(second)
    assert sink_key(SinkPart("jsonl:a")) == url_key("jsonl:a"), "as files of earlier versions"


async def test_a_sink_that_cannot_be_opened_is_told_at_once(ground: Ground) -> None:
    held = await ground.begin("jsonl:../outside.jsonl")
    with pytest.raises(ConfigurationError, match="outside"):
        await ground.center("a").open(held, ground.sinks)
