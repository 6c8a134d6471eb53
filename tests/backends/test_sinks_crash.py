"""Sinks under real kills: of the process that writes, and of the server that it writes to."""

from __future__ import annotations

import asyncio
import contextlib
import csv
import json
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
import sqlalchemy as sa
from redis import Redis

from skep.runtime.backoff import Backoff
from skep.runtime.clock import SystemClock
from skep.streams.ports import Record, Refused
from skep.streams.position import PositionFile
from skep.streams.registry import open_sink
from skep.streams.sink_writer import SinkWriter
from skep.testing import servers

KILLS = 20

WRITER = """
import asyncio, sys
from random import Random
from skep.streams.ports import Record
from skep.streams.registry import open_sink

async def keep_writing(url, rng):
    sink = open_sink(url)
    position = await sink.open()
    while True:
        count = rng.randrange(1, 40)
        numbers = range(position + 1, position + count + 1)
        await sink.write([Record(n, {"n": n, "text": "x" * (n * 37 % 400)}) for n in numbers])
        position += count
        print(url, position, flush=True)

async def main(seed, *urls):
    await asyncio.gather(*(keep_writing(url, Random(seed)) for url in urls))

asyncio.run(main(int(sys.argv[1]), *sys.argv[2:]))
"""


def write_and_kill(urls: list[str], rng: Random) -> dict[str, int]:
    """Let a child write for a seeded time, kill it; the last position it told of each."""
    command = [sys.executable, "-c", WRITER, str(rng.randrange(2**32)), *urls]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        told = [child.stdout.readline() for _ in range(rng.randrange(1, 12))]
        time.sleep(rng.random() * 0.01)  # somewhere inside a batch
        child.kill()
        told += child.stdout.readlines()
    whole = [line.split() for line in told if line.endswith("\n")]
    return {url: int(position) for url, position in whole}


def numbers_in(path: Path) -> list[int]:
    if path.suffix == ".csv":
        with path.open(newline="") as file:
            return [int(row["n"]) for row in csv.DictReader(file)]
    if path.suffix == ".sqlite":
        with contextlib.closing(sqlite3.connect(path)) as database:
            return [n for (n,) in database.execute("SELECT n FROM items ORDER BY skep_id")]
    return [json.loads(line)["n"] for line in path.read_bytes().splitlines()]


async def test_files_hold_every_record_exactly_once_after_twenty_kills(tmp_path: Path) -> None:
    """kill -9 at seeded moments: nothing is lost, nothing is there twice, no half line."""
    rng = Random(70)
    paths = [tmp_path / "out.jsonl", tmp_path / "out.csv", tmp_path / "out.sqlite"]
    urls = [f"{path.suffix[1:]}:{path}" for path in paths]
    told: dict[str, int] = {}
    for _ in range(KILLS):
        told |= await asyncio.to_thread(write_and_kill, urls, rng)
    for url, path in zip(urls, paths, strict=True):
        sink = open_sink(url)
        position = await sink.open()
        await sink.close()
        assert position >= told[url]
        assert numbers_in(path) == list(range(1, position + 1))


COUNT = 300


class Source:
    """Records of its own making, which does something on the way."""

    def __init__(self, at: int, then: Callable[[], None]) -> None:
        self._at, self._then = at, then

    async def read(self, after: int, limit: int) -> list[Record]:
        if after >= self._at:
            self._at = COUNT + 1
            self._then()
        last = min(COUNT, after + limit)
        return [Record(n, {"n": n}) for n in range(after + 1, last + 1)]


class NoticingClock(SystemClock):
    """Signals when the writer waits: it does so only when its sink is down."""

    def __init__(self) -> None:
        self.somebody_waits = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        self.somebody_waits.set()
        await super().sleep(seconds)


async def no_dead(refused: Refused) -> None:
    raise AssertionError(refused)


async def pump_through_an_outage(
    server: servers.Server, url: str, memory: Path | None
) -> SinkWriter:
    """Kill the server half-way, start it when the pump has noticed, and let it finish."""
    clock, source = NoticingClock(), Source(COUNT // 2, server.kill)
    pump = SinkWriter(
        open_sink(url),
        source.read,
        clock,
        Random(1),
        dead=no_dead,
        batch=10,
        memory=PositionFile(memory) if memory else None,
        backoff=Backoff(first=0.02, cap=0.1),
    )
    running = asyncio.create_task(pump.run_until(lambda: True))
    await asyncio.wait_for(clock.somebody_waits.wait(), 60)
    await asyncio.to_thread(server.start)
    assert await asyncio.wait_for(running, 60)
    await pump.close()
    assert pump.counts.retries > 0
    assert pump.counts.written == COUNT
    return pump


@pytest.mark.parametrize("make", [servers.postgres, servers.mariadb], ids=["postgres", "mariadb"])
async def test_a_database_that_is_killed_holds_every_record_once(
    make: Callable[..., servers.Database],
) -> None:
    with make(durable=True) as server:
        url = server.fresh_database()
        await pump_through_an_outage(server, f"{url}?table=numbers", None)
        assert await asyncio.to_thread(numbers_in_table, url) == list(range(1, COUNT + 1))


def numbers_in_table(url: str) -> list[int]:
    driver = url.replace("postgresql:", "postgresql+psycopg:").replace("mysql:", "mysql+pymysql:")
    engine = sa.create_engine(driver)
    try:
        with engine.connect() as connection:
            query = "SELECT n FROM numbers ORDER BY skep_id"
            return [int(row[0]) for row in connection.execute(sa.text(query))]
    finally:
        engine.dispose()


async def test_a_redis_that_is_killed_holds_every_record(tmp_path: Path) -> None:
    with servers.redis(durable=True) as server:
        memory = tmp_path / "position"
        await pump_through_an_outage(server, f"{server.url}?list=numbers", memory)
        client: Any = Redis.from_url(server.url)
        stored = [json.loads(one)["n"] for one in client.lrange("numbers", 0, -1)]
        client.close()
        assert list(dict.fromkeys(stored)) == list(range(1, COUNT + 1))
        assert json.loads(memory.read_text()) == {"position": COUNT}
