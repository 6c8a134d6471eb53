"""The input contract on Redis streams and files, and what is theirs alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from random import Random

import msgspec
import pytest
import redis

from skep.errors import ConfigurationError, Unavailable
from skep.model.pipelines.pool import PoolLedger
from skep.pipelines.definitions.document_check import PipelineChecker
from skep.pipelines.engine.engine import Engine, Ports
from skep.pipelines.engine.message import Arrived
from skep.pipelines.engine.pooled_messages import for_the_pool
from skep.pipelines.inline_tests import GivenAnswers, GivenStores, SeenOutputs
from skep.pool.message_pool import MessagePool, PoolLimits
from skep.runtime.clock import SystemClock
from skep.store.sql.store import SqlStore
from skep.streams.inputs.lines_file import LinesFileInput
from skep.streams.inputs.ports import Input
from skep.streams.inputs.redis_list import RedisListInput
from skep.streams.inputs.redis_stream import RedisStreamInput, StreamOptions
from skep.testing.conformance.input.suite import (
    InputConformance,
    InputGround,
    bodies,
    everything,
    opened,
)
from skep.testing.polling import until


class StreamGround(InputGround):
    """A stream of a real Redis."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.client = redis.Redis.from_url(url)

    def reader(self, group: str = "g", name: str = "r", **options: object) -> Input:
        made = msgspec.convert(
            {"stream": "s", "group": group, "consumer": name, **options}, StreamOptions
        )
        return RedisStreamInput(self.url, made, SystemClock())

    async def add(self, bodies: Sequence[bytes]) -> None:
        for body in bodies:
            self.client.xadd("s", {"data": body})


class KeptPositions:
    """Positions of one group, in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def load(self) -> Mapping[str, int]:
        if not self._path.exists():
            return {}
        return msgspec.json.decode(self._path.read_bytes(), type=dict[str, int])

    async def save(self, positions: Mapping[str, int]) -> None:
        self._path.write_bytes(msgspec.json.encode(positions))


class FileGround(InputGround):
    """A file with lines."""

    alone = False

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "lines.txt"

    def reader(self, group: str = "g", name: str = "r") -> Input:  # noqa: ARG002 - one reader
        return LinesFileInput(self.file, KeptPositions(self.folder / group), SystemClock())

    async def add(self, bodies: Sequence[bytes]) -> None:
        with self.file.open("ab") as file:
            file.writelines(body + b"\n" for body in bodies)


class ListGround(InputGround):
    """A list of a real Redis."""

    groups = names = False

    def __init__(self, url: str) -> None:
        self.url = url
        self.client = redis.Redis.from_url(url)
        self._sessions = count()

    def reader(self, group: str = "g", name: str = "r") -> Input:  # noqa: ARG002 - no groups
        return RedisListInput(self.url, "l", name, str(next(self._sessions)))

    async def add(self, bodies: Sequence[bytes]) -> None:
        self.client.rpush("l", *bodies)


@pytest.fixture
def lists(redis_url: str) -> ListGround:
    return ListGround(redis_url)


@pytest.fixture
def streams(redis_url: str) -> StreamGround:
    return StreamGround(redis_url)


@pytest.fixture
def files(tmp_path: Path) -> FileGround:
    return FileGround(tmp_path)


class TestRedisStream(InputConformance):
    """The contract on a Redis stream."""

    @pytest.fixture
    def ground(self, streams: StreamGround) -> InputGround:
        return streams


class TestRedisList(InputConformance):
    """The contract on a Redis list."""

    @pytest.fixture
    def ground(self, lists: ListGround) -> InputGround:
        return lists


class TestLinesFile(InputConformance):
    """The contract on a file."""

    @pytest.fixture
    def ground(self, files: FileGround) -> InputGround:
        return files


async def test_readers_of_one_group_share_the_messages(streams: StreamGround) -> None:
    await streams.add([b"%d" % number for number in range(10)])
    async with opened(streams.reader(name="a")) as one, opened(streams.reader(name="b")) as two:
        found = [*await one.read(5, 0), *await two.read(100, 0)]
    assert sorted(bodies(found)) == [b"%d" % number for number in range(10)]


async def test_messages_of_a_dead_reader_are_claimed_and_counted(streams: StreamGround) -> None:
    """S6: XAUTOCLAIM at the start, and the number of deliveries."""
    await streams.add([b"1", b"2"])
    async with opened(streams.reader(name="dead")) as dead:
        assert [message.deliveries for message in await everything(dead)] == [1, 1]
    alive = streams.reader(name="alive", reclaim_after=0.001)
    async with opened(alive):
        found = []

        async def all_claimed() -> bool:
            found.extend(await alive.read(10, 0))
            return len(found) >= 2

        await until(all_claimed)
        assert bodies(found[:2]) == [b"1", b"2"]
        assert all(message.deliveries >= 2 for message in found)
        await alive.acknowledge([message.position for message in found])
    pending = streams.client.xpending("s", "g")
    assert pending["pending"] == 0


async def test_a_held_message_is_not_claimed(streams: StreamGround) -> None:
    await streams.add([b"1"])
    async with opened(streams.reader(name="a")) as one, opened(streams.reader(name="b")) as two:
        assert len(await one.read(10, 0)) == 1
        assert await two.read(10, 0) == []


async def test_a_group_can_begin_with_the_latest(streams: StreamGround) -> None:
    await streams.add([b"old"])
    async with opened(streams.reader(start="$")) as reader:
        await streams.add([b"new"])
        assert bodies(await everything(reader)) == [b"new"]


async def test_an_entry_without_the_field_is_a_json_object(streams: StreamGround) -> None:
    streams.client.xadd("s", {"a": "1", "b": "ü"})
    async with opened(streams.reader()) as reader:
        [message] = await everything(reader)
    assert msgspec.json.decode(message.body) == {"a": "1", "b": "ü"}


async def test_a_stream_that_vanishes_is_read_when_it_is_back(streams: StreamGround) -> None:
    """Bad input: a topic that vanishes."""
    async with opened(streams.reader()) as reader:
        streams.client.delete("s")
        assert await reader.read(10, 0) == []
        await streams.add([b"1"])
        assert bodies(await everything(reader)) == [b"1"]


async def test_entries_that_were_deleted_are_skipped(streams: StreamGround) -> None:
    await streams.add([b"1", b"2"])
    async with opened(streams.reader()) as reader:
        first, _ = await everything(reader)
    streams.client.xdel("s", first.position)
    async with opened(streams.reader()) as reader:
        assert bodies(await everything(reader)) == [b"2"]


async def test_wrong_places_say_what_is_wrong(streams: StreamGround) -> None:
    streams.client.set("s", "text")
    with pytest.raises(ConfigurationError, match="WRONGTYPE"):
        await streams.reader().open()
    options = StreamOptions("s", "g", "r")
    with pytest.raises(ConfigurationError):
        RedisStreamInput("http://x", options, SystemClock())
    away = RedisStreamInput("redis://u:secret@127.0.0.1:1/0", options, SystemClock())
    with pytest.raises(Unavailable) as refused:
        await away.open()
    assert "secret" not in str(refused.value)
    await away.close()


async def test_an_incomplete_line_waits_for_its_end(files: FileGround) -> None:
    files.file.write_bytes(b"one\ntw")
    async with opened(files.reader()) as reader:
        assert bodies(await everything(reader)) == [b"one"]
        await files.add([b"o", b""])
        assert bodies(await everything(reader)) == [b"two", b""]


async def test_a_truncated_file_is_not_read_from_the_middle(files: FileGround) -> None:
    await files.add([b"one", b"two"])
    async with opened(files.reader()) as reader:
        found = await everything(reader)
        await reader.acknowledge([message.position for message in found])
        files.file.write_bytes(b"new\n")
        with pytest.raises(ConfigurationError, match="was truncated"):
            await reader.read(10, 0)


async def test_a_file_that_comes_later(files: FileGround) -> None:
    async with opened(files.reader()) as reader:
        assert await reader.read(10, 0) == []
        await files.add([b"1"])
        assert bodies(await reader.read(10, 0)) == [b"1"]


async def test_equal_messages_of_a_list_are_each_acknowledged_once(lists: ListGround) -> None:
    await lists.add([b"x", b"x", b"x"])
    async with opened(lists.reader()) as reader:
        first, *_ = await everything(reader)
        await reader.acknowledge([first.position])
    assert lists.client.llen("l:held:r") == 2


async def test_a_worker_that_dies_before_it_acknowledges_stores_nothing_twice(
    streams: StreamGround, tmp_path: Path
) -> None:
    """S6: input, engine and pool together. The pool answers first, then the input is acknowledged;
    a crash in between repeats the batch, and the pool knows the origin of each message."""
    store = SqlStore(f"sqlite:///{tmp_path / 'skep.db'}")
    await store.open()
    clock = SystemClock()
    pool = MessagePool(store.pool, clock, PoolLimits())
    outputs = SeenOutputs({"t": "down"})
    document = {"name": "p", "inputs": "in", "operations": [{"outputs": [{"target": "t"}]}]}
    ports = Ports(GivenStores({}), GivenAnswers({}), outputs)
    engine = Engine(PipelineChecker(clock).check(document), ports, clock, Random(1))
    await streams.add([b"{}", b"not JSON", b"{}"])
    for crashed in (True, False):
        async with opened(streams.reader()) as reader:
            messages = await everything(reader)
            arrived = [Arrived(message.body, "in") for message in messages]
            outcomes = await engine.process(arrived)
            new = [
                for_the_pool(one, message.position, outcome, 100)
                for one, message, outcome in zip(arrived, messages, outcomes, strict=True)
            ]
            assert len(await everything(reader)) == 0
            stored = await pool.keep("p", [one for one in new if one])
            assert stored == (3 if crashed else 0)
            if not crashed:
                await reader.acknowledge([message.position for message in messages])
    assert await pool.ledger("p") == PoolLedger(put=3, waiting=2, dead=1)
    assert streams.client.xpending("s", "g")["pending"] == 0
    assert engine.tally.balanced
    await store.close()
