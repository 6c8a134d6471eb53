"""The contract of sinks on every kind of place, with real servers.

Kafka is librdkafka's own mock cluster in a child process, a stand-in: its brokers speak
the protocol over TCP, but keep nothing. MongoDB cannot be had; see tests/unit/test_sinks.
"""

from __future__ import annotations

import contextlib
import csv
import itertools
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from aiohttp import web
from confluent_kafka import Consumer, TopicPartition
from redis import Redis

from skep.streams.ports import Sink
from skep.streams.registry import open_sink
from skep.testing import servers
from skep.testing.conformance.sink import KeyedSinkConformance, SinkConformance, SinkGround


class JsonLinesGround(SinkGround):
    exactly_once = True

    def __init__(self, folder: Path) -> None:
        self.path = folder / "out.jsonl"

    def sink(self) -> Sink:
        return open_sink(str(self.path))

    async def stored(self) -> list[dict[str, Any]]:
        lines = self.path.read_bytes().splitlines(keepends=True)
        assert all(line.endswith(b"\n") for line in lines)
        return [json.loads(line) for line in lines]


class TestJsonLines(SinkConformance):
    @pytest.fixture
    def ground(self, tmp_path: Path) -> JsonLinesGround:
        return JsonLinesGround(tmp_path)


class CsvGround(SinkGround):
    exactly_once = True

    def __init__(self, folder: Path) -> None:
        self.path = folder / "out.csv"

    def sink(self) -> Sink:
        return open_sink(f"csv:{self.path}")

    async def stored(self) -> list[dict[str, Any]]:
        before = csv.field_size_limit(2**24)
        with self.path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        csv.field_size_limit(before)
        return [{name: cell for name, cell in row.items() if cell} for row in rows]

    def as_stored(self, data: dict[str, Any]) -> dict[str, Any]:
        cells = {name: self._cell(value) for name, value in data.items()}
        return {name: cell for name, cell in cells.items() if cell}

    def _cell(self, value: Any) -> str:
        if isinstance(value, str):
            return f"'{value}" if value.startswith("=") else value
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        return "" if value is None else text


class TestCsv(SinkConformance):
    @pytest.fixture
    def ground(self, tmp_path: Path) -> CsvGround:
        return CsvGround(tmp_path)


#: A table of its own for each test, in one database.
TABLES = itertools.count(1)


class SqlGround(SinkGround):
    exactly_once = True

    def __init__(self, url: str, driver: str, *, key: bool = False) -> None:
        self.url, self.driver, self.has_key = url, driver, key
        self.table = f"quotes {next(TABLES)}"

    def sink(self) -> Sink:
        return open_sink(f"{self.url}?table={self.table}{'&key=url' if self.has_key else ''}")

    async def stored(self) -> list[dict[str, Any]]:
        engine = sa.create_engine(self.driver)
        try:
            with engine.connect() as connection:
                if not sa.inspect(connection).has_table(self.table):
                    return []
                query = sa.select(sa.text("*")).select_from(sa.table(self.table))
                rows = connection.execute(query).mappings().all()
        finally:
            engine.dispose()
        order = self._place_of if self.has_key else lambda row: row["skep_id"]
        return [self._row(row) for row in sorted(rows, key=order)]

    def _place_of(self, row: Any) -> tuple[int, str]:
        """A table has no order; these urls end in their number."""
        digits = row["url"].lstrip("u")
        return (int(digits) if digits.isdigit() else 0, row["url"])

    def _row(self, row: Any) -> dict[str, Any]:
        return {
            name: self._loosely(value)
            for name, value in row.items()
            if name != "skep_id" and value is not None
        }

    def _loosely(self, value: Any) -> Any:
        """Nested values come back as JSON text from two of the three databases."""
        return json.loads(value) if isinstance(value, str) and value[:1] in {"{", "["} else value

    def as_stored(self, data: dict[str, Any]) -> dict[str, Any]:
        return {
            name: str(value) if value == 2**70 else value
            for name, value in data.items()
            if value is not None
        }


@pytest.fixture(scope="module", params=["sqlite", "postgresql", "mariadb"])
def sql_place(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, str]:
    """A database for all tests of a kind: (its URL for a sink, its URL for SQLAlchemy)."""
    if request.param == "sqlite":
        file = tmp_path_factory.mktemp("sqlite") / "items.db"
        return f"sqlite:{file}", f"sqlite:///{file}"
    name = {"postgresql": "postgres_server", "mariadb": "mariadb_server"}[request.param]
    server: servers.Database = request.getfixturevalue(name)
    url = server.fresh_database()
    driver = url.replace("postgresql:", "postgresql+psycopg:").replace("mysql:", "mysql+pymysql:")
    return url, driver


class TestSql(SinkConformance):
    @pytest.fixture
    def ground(self, sql_place: tuple[str, str]) -> SqlGround:
        return SqlGround(*sql_place)


class TestSqlWithKey(KeyedSinkConformance):
    @pytest.fixture
    def ground(self, sql_place: tuple[str, str]) -> SqlGround:
        return SqlGround(*sql_place, key=True)


class RedisGround(SinkGround):
    def __init__(self, url: str, options: str) -> None:
        self.url, self.options = url, options
        self.has_key = "hash" in options

    def sink(self) -> Sink:
        return open_sink(f"{self.url}?{self.options}")

    async def stored(self) -> list[dict[str, Any]]:
        client: Any = Redis.from_url(self.url)
        with contextlib.closing(client):
            found = self._read(client)
        stored = [json.loads(one) for one in found]
        return (
            sorted(stored, key=lambda one: (len(one["url"]), one["url"]))
            if (self.has_key)
            else stored
        )

    def _read(self, client: Any) -> list[bytes]:
        if self.has_key:
            return list(client.hvals("items"))
        if self.options.startswith("stream"):
            return [fields[b"data"] for _, fields in client.xrange("items")]
        return list(client.lrange("items", 0, -1))


class TestRedis(SinkConformance):
    @pytest.fixture(params=["list=items", "stream=items"])
    def ground(self, redis_url: str, request: pytest.FixtureRequest) -> RedisGround:
        return RedisGround(redis_url, request.param)


class TestRedisHash(KeyedSinkConformance):
    @pytest.fixture
    def ground(self, redis_url: str) -> RedisGround:
        return RedisGround(redis_url, "hash=items&key=url")


MOCK_CLUSTER = """
import sys
from confluent_kafka import Producer
cluster = Producer({"bootstrap.servers": "mock", "test.mock.num.brokers": 2})
brokers = cluster.list_topics(timeout=10).brokers.values()
print(",".join(f"{broker.host}:{broker.port}" for broker in brokers), flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="session")
def kafka_stand_in() -> Iterator[str]:
    """Brokers of librdkafka's mock cluster; it ends when its input does."""
    with subprocess.Popen(
        [sys.executable, "-c", MOCK_CLUSTER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        try:
            assert child.stdout is not None
            yield child.stdout.readline().strip()
        finally:
            child.kill()


class KafkaGround(SinkGround):
    def __init__(self, brokers: str, topic: str) -> None:
        self.brokers, self.topic = brokers, topic

    def sink(self) -> Sink:
        return open_sink(f"kafka://{self.brokers}/{self.topic}")

    async def stored(self) -> list[dict[str, Any]]:
        """In the order of positions; each partition alone must have them in order."""
        by_partition = read_topic(self.brokers, self.topic)
        numbers = {key: [n for n, _ in messages] for key, messages in by_partition.items()}
        if len({n for one in numbers.values() for n in one}) == sum(map(len, numbers.values())):
            assert all(one == sorted(one) for one in numbers.values())
        everything = [pair for messages in by_partition.values() for pair in messages]
        return [data for _, data in sorted(everything, key=lambda pair: pair[0])]


def read_topic(brokers: str, topic: str) -> dict[int, list[tuple[int, Any]]]:
    """All messages by partition, as (position, data), read to the end that is known now."""
    consumer = Consumer({"bootstrap.servers": brokers, "group.id": "reader"})
    try:
        found = consumer.list_topics(topic, timeout=10).topics[topic].partitions
        ends = {
            number: consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=10)[1]
            for number in found
        }
        consumer.assign([TopicPartition(topic, number, 0) for number in found])
        messages: dict[int, list[tuple[int, Any]]] = {number: [] for number in found}
        while sum(map(len, messages.values())) < sum(ends.values()):
            message = consumer.poll(10)
            assert message is not None, "messages are missing"
            assert not message.error(), message.error()
            headers: Any = message.headers()
            partition, value = message.partition(), message.value()
            assert partition is not None
            assert value is not None
            position = int(dict(headers)["position"])
            messages[partition].append((position, json.loads(value)))
        return messages
    finally:
        consumer.close()


class TestKafkaOnLibrdkafkasMockCluster(SinkConformance):
    """A stand-in: no current Kafka broker can be installed where these tests run."""

    @pytest.fixture
    def ground(self, kafka_stand_in: str, request: pytest.FixtureRequest) -> KafkaGround:
        return KafkaGround(kafka_stand_in, f"topic-{abs(hash(request.node.name))}")


class WebhookGround(SinkGround):
    def __init__(self, url: str, taken: list[dict[str, Any]]) -> None:
        self.url, self.taken = url, taken

    def sink(self) -> Sink:
        return open_sink(f"{self.url}?batch=500", name="run-1")

    async def stored(self) -> list[dict[str, Any]]:
        return [record["data"] for record in self.taken]


class TestWebhook(SinkConformance):
    @pytest.fixture
    async def ground(self) -> AsyncIterator[WebhookGround]:
        taken: list[dict[str, Any]] = []

        async def take(request: web.Request) -> web.Response:
            taken.extend((await request.json())["records"])
            return web.Response(status=204)

        app = web.Application(client_max_size=2**24)
        app.router.add_post("/hook", take)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        yield WebhookGround(f"http://user:secret@127.0.0.1:{port}/hook", taken)
        await runner.cleanup()
