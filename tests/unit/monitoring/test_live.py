"""Live updates: pollers are shared, slow readers are cut off, nothing is lost without a word."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from skep.errors import Forbidden, InvalidInput, StoreDown, TooManyStreams
from skep.model.live import LiveRow
from skep.model.people.scope import Scope
from skep.monitoring.live import hub as hubs
from skep.monitoring.live.hub import LiveHub, StreamLimits
from skep.monitoring.live.snapshots import Snapshot
from skep.monitoring.live.stream import CHECK_EVERY, EVENTS_LIMIT, Stream
from skep.monitoring.live.watches import Read, WatchKind, WatchKinds
from skep.runtime.clock import SystemClock
from skep.runtime.signals import Signal
from skep.testing.clock import ManualClock
from skep.testing.polling import until
from skep.wire.api.monitoring.events import LiveEvent
from skep.wire.client.events import read_events


def row(key: str, **data: Any) -> LiveRow:
    return LiveRow(key, {"name": key, **data})


class Ground:
    """A hub over lists that the test changes."""

    def __init__(self) -> None:
        self.lists: dict[str, list[LiveRow]] = {}
        self.looks = 0
        self.changes = Signal()
        self.closing = asyncio.Event()
        self.problem: Exception | None = None
        kinds = WatchKinds([WatchKind("list", self._open), WatchKind("one", self._open, True)])
        self.hub = LiveHub(kinds, SystemClock(), self.changes, self.closing)

    def _open(self, argument: str, _scope: Scope) -> Read:
        if argument == "bad":
            raise InvalidInput("bad")

        async def read() -> list[LiveRow]:
            self.looks += 1
            if self.problem is not None:
                raise self.problem
            return list(self.lists.get(argument, []))

        return read

    def change(self, name: str, *rows: LiveRow) -> None:
        self.lists[name] = list(rows)
        self.changes.notify()

    async def open(self, *watches: str, last: str = "") -> tuple[Stream, AsyncIterator[LiveEvent]]:
        stream = await self.hub.open(watches, last, _nothing)
        return stream, read_events(stream.parts())


async def _nothing() -> None:
    return None


@pytest.fixture
async def ground() -> AsyncIterator[Ground]:
    found = Ground()
    yield found
    found.closing.set()
    found.hub.stop()


async def test_a_stream_has_the_list_and_then_what_changes(ground: Ground) -> None:
    ground.change("a", row("1"), row("2"))
    _, events = await ground.open("list:a")
    first = await anext(events)
    assert (first.event, first.data.watch) == ("page", "list:a")
    assert [one["name"] for one in first.data.items] == ["1", "2"]
    ground.change("a", row("2"), row("3", n=1))
    second = await anext(events)
    assert (second.event, second.data.gone) == ("change", ["1"])
    assert second.data.changed == [{"name": "3", "n": 1}]
    assert second.id != first.id


async def test_all_who_watch_the_same_share_one_reader(ground: Ground) -> None:
    """R3: one store query for all."""
    ground.change("a", row("1"))
    streams = [await ground.open("list:a") for _ in range(50)]
    assert (ground.looks, ground.hub.watched) == (1, 1)
    for _, events in streams:
        assert (await anext(events)).event == "page"
    ground.change("a", row("2"))
    for _, events in streams:
        assert (await anext(events)).data.changed == [{"name": "2"}]
    assert ground.looks <= 3
    for stream, _ in streams:
        ground.hub.close(stream)
        ground.hub.close(stream)
    assert ground.hub.watched == 0


async def test_a_lost_signal_costs_a_delay(ground: Ground) -> None:
    _, events = await ground.open("list:a")
    await anext(events)
    ground.lists["a"] = [row("1")]  # without a signal
    begun = asyncio.get_running_loop().time()
    assert (await anext(events)).data.changed == [{"name": "1"}]
    assert asyncio.get_running_loop().time() - begun < 2.0


class _Frozen(SystemClock):
    """A clock that jumps while the store is frozen, and notes how long pollers rest."""

    def __init__(self) -> None:
        super().__init__()
        self.ahead = 0.0
        self.rests: list[float] = []

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead

    async def sleep(self, seconds: float) -> None:
        self.rests.append(seconds)
        await super().sleep(0.001)


async def test_a_store_that_was_frozen_costs_a_short_rest() -> None:
    """R3: a look that took 80 s because the database was frozen is not followed by 320 s."""
    clock, looks = _Frozen(), 0

    def open_list(_: str, _scope: Scope) -> Read:
        async def read() -> list[LiveRow]:
            nonlocal looks
            looks += 1
            if looks == 2:
                clock.ahead = 80.0
            return [row(str(looks))] if looks > 2 else []

        return read

    kinds = WatchKinds([WatchKind("list", open_list)])
    hub = LiveHub(kinds, clock, Signal(), asyncio.Event())
    stream = await hub.open(["list:a"], "", _nothing)
    events = read_events(stream.parts())
    assert (await anext(events)).event == "page"
    assert (await anext(events)).data.changed
    assert max(clock.rests) == hubs.LONGEST_REST
    hub.stop()


async def test_a_client_continues_after_its_last_event(ground: Ground) -> None:
    """It gets nothing twice, the difference, or the whole list; never a wrong one."""
    ground.change("a", row("1"))
    stream, events = await ground.open("list:a", "list:b")
    ids = [(await anext(events)).id for _ in range(2)]
    keep, kept = await ground.open("list:a", "list:b")
    ground.change("a", row("1"), row("2"))
    changed = await anext(events)
    ground.hub.close(stream)
    _, again = await ground.open("list:a", "list:b", last=changed.id)
    ground.change("b", row("9"))
    assert (await anext(again)).data.watch == "list:b", "list a was not sent again"
    _, late = await ground.open("list:a", "list:b", last=ids[-1])
    missed = await anext(late)
    assert (missed.event, missed.data.changed) == ("change", [{"name": "2"}])
    for nonsense in ("x", "x.y", "." * 500, changed.id + ".0"):
        _, other = await ground.open("list:a", "list:b", last=nonsense)
        assert (await anext(other)).event == "page"
    assert kept
    ground.hub.close(keep)


async def test_the_id_is_the_same_at_another_center(ground: Ground) -> None:
    other = Ground()
    for one in (ground, other):
        one.change("a", row("1"))
    _, events = await ground.open("list:a")
    first = await anext(events)
    _, elsewhere = await other.open("list:a", last=first.id)
    other.change("a", row("1"), row("2"))
    assert (await anext(elsewhere)).data.changed == [{"name": "2"}]
    other.closing.set()
    other.hub.stop()


def test_secrets_are_masked_for_everyone() -> None:
    page = Snapshot([row("1", uri="https://anna:geheim@host/?password=geheim")]).page("x")
    assert b"geheim" not in page


async def test_a_slow_reader_is_told_to_reload() -> None:
    """Its buffer has a limit, and it is cut off."""
    stream = Stream(["w"], SystemClock(), _nothing, asyncio.Event())
    for number in range(EVENTS_LIMIT + 20):
        stream.offer("w", "change", f"{number}", b"{}")
    events = [event async for event in read_events(stream.parts())]
    assert [event.event for event in events] == ["reload"]
    large = Stream(["w"], SystemClock(), _nothing, asyncio.Event())
    for _ in range(5):
        large.offer("w", "change", "d", b'{"watch":"%b"}' % (b"x" * 1_000_000))
    events = [event async for event in read_events(large.parts())]
    assert [event.event for event in events] == ["reload"]


async def test_a_role_that_was_lowered_ends_the_stream() -> None:
    clock, allowed = ManualClock(), True

    async def check() -> None:
        if not allowed:
            raise Forbidden("this needs role viewer")

    stream = Stream(["w"], clock, check, asyncio.Event())
    parts = stream.parts()
    await anext(parts)
    stream.offer("w", "change", "1", b'{"watch":"w"}')
    assert b"change" in await anext(parts)
    allowed = False
    clock.advance(CHECK_EVERY)
    stream.offer("w", "change", "2", b'{"watch":"secret"}')
    last = await anext(parts)
    assert b"event: end" in last
    assert b"needs role viewer" in last
    assert [part async for part in parts] == []


async def test_a_store_that_is_away_ends_no_stream(ground: Ground) -> None:
    ground.change("a", row("1"))
    clock = ManualClock()

    async def check() -> None:
        raise StoreDown("away")

    stream = Stream(["w"], clock, check, asyncio.Event())
    parts = stream.parts()
    await anext(parts)
    clock.advance(CHECK_EVERY)
    stream.offer("w", "change", "1", b'{"watch":"w"}')
    assert b"change" in await anext(parts)
    _, events = await ground.open("list:a")
    await anext(events)
    ground.problem = StoreDown("away")
    ground.change("a", row("2"))
    looks = ground.looks
    await until(lambda: ground.looks >= looks + 2)
    ground.problem = None
    assert (await anext(events)).data.changed == [{"name": "2"}]


async def test_a_stopping_center_ends_every_stream_at_once(ground: Ground) -> None:
    _, events = await ground.open("list:a")
    await anext(events)
    waiting = asyncio.ensure_future(anext(events))
    await asyncio.sleep(0)
    ground.closing.set()
    ground.hub.stop()
    async with asyncio.timeout(1.0):
        assert (await waiting).event == "end"


@pytest.mark.parametrize(
    ("watch", "text"),
    [
        ("pages", "'pages' cannot be watched; use one of list, one"),
        ("one:", "one:NAME"),
        ("list:bad", "bad"),
    ],
)
async def test_a_watch_that_is_not_valid_opens_nothing(
    ground: Ground, watch: str, text: str
) -> None:
    with pytest.raises(InvalidInput, match=text):
        await ground.open("list:a", watch)
    assert ground.hub.watched == 0


async def test_a_first_look_that_fails_leaves_nothing(ground: Ground) -> None:
    ground.problem = StoreDown("away")
    with pytest.raises(StoreDown):
        await ground.open("list:a", "list:b")
    assert ground.hub.watched == 0


async def test_streams_and_lists_are_bounded(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = StreamLimits(3, 2)
    for address in ("a", "a", "b"):
        limits.take(address)
    with pytest.raises(TooManyStreams, match="3 event streams are open at this center"):
        limits.take("c")
    limits.free("b")
    with pytest.raises(TooManyStreams, match="2 event streams are open from a"):
        limits.take("a")
    limits.free("a")
    limits.take("a")
    assert limits.open == 2
    monkeypatch.setattr(hubs, "POLLERS_LIMIT", 2)
    await ground.open("list:a", "list:b")
    with pytest.raises(TooManyStreams, match="2 different lists"):
        await ground.open("list:a", "list:c")
    await ground.open("list:b")
