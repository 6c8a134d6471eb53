"""The thread of an http downloader: how many at once, how far apart, and what it leaves behind."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from skep.downloaders.egress_policy import EgressPolicy
from skep.downloaders.http import HttpKind
from skep.downloaders.ports import Fetched
from skep.downloaders.registry import kinds
from skep.model.request import Work
from skep.model.run import RunSettings
from skep.runtime.clock import SystemClock
from skep.settings import EgressSettings
from skep.testing.grounds.downloaders import LOOPBACK, PAGE, Open
from skep.testing.polling import until
from skep.testing.servers.hostile_http import (
    Asked,
    HostileConnection,
    HostileServer,
    answer,
    fetch,
    fetch_all,
    redirects,
    repeats,
    says,
    silence,
)


async def test_concurrency_per_host_is_limited(opened: Open, server: HostileServer) -> None:
    async def slow(_asked: Asked, line: HostileConnection) -> None:
        await asyncio.sleep(0.01)
        await line.send(answer(b"x"))

    server.routes["/slow"] = slow
    works = [Work(n, server.url("/slow")) for n in range(30)]
    results = await fetch_all(opened(host_concurrency=3), works)
    assert [r.outcome.failure for r in results] == [""] * 30
    assert server.most_busy == 3
    assert server.connections == 3


async def test_a_delay_between_two_starts_on_a_host(opened: Open, server: HostileServer) -> None:
    server.routes["/from"] = redirects("/page")
    works = [Work(n, server.url("/from" if n == 2 else "/page")) for n in range(4)]
    await fetch_all(opened(host_delay=0.1), works)
    times = [asked.at for asked in server.asked]
    gaps = [after - before for before, after in pairwise(times)]
    assert len(gaps) == 4
    assert min(gaps) > 0.08


async def test_a_slow_host_does_not_hold_up_another(opened: Open, server: HostileServer) -> None:
    server.routes["/hang"] = silence
    downloader = opened(host_concurrency=2)
    stuck = [asyncio.ensure_future(fetch(downloader, Work(n, server.url("/hang"))))
             for n in range(4)]  # fmt: skip
    async with HostileServer({"/page": says(PAGE)}, host="127.0.0.3") as other:
        outcome = (await fetch(downloader, Work(9, other.url("/page")))).outcome
    assert outcome.status == 200
    await downloader.close()
    assert {(await each).outcome.failure for each in stuck} == {"lost"}


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_close_ends_everything_and_leaks_nothing(server: HostileServer) -> None:
    server.routes["/hang"] = silence
    kind = HttpKind(SystemClock(), Random(1), EgressPolicy(allow=LOOPBACK))
    # The executor of the loop opens nothing, but its first thread must not be counted.
    await asyncio.get_running_loop().run_in_executor(None, open_files)
    before = open_files() - 2 * server.connections
    for _ in range(3):
        downloader = kind.open("run", RunSettings(host_concurrency=4))
        await fetch(downloader, Work(0, server.url("/page")))
        works = [Work(n, server.url("/hang")) for n in range(8)]
        waiting = [asyncio.ensure_future(fetch(downloader, work)) for work in works]
        await until(lambda: server.busy >= 4, seconds=5, step=0.005)
        await downloader.close()
        assert downloader.active == 0
        assert {(await each).outcome.failure for each in waiting} == {"lost"}
        late = await fetch(downloader, Work(99, server.url("/page")))
        assert (late.outcome.failure, downloader.active) == ("lost", 0)
        await downloader.close()
        await server.disconnected()
    assert open_files() == before


async def test_a_thousand_pages_once_each(opened: Open, server: HostileServer) -> None:
    works = [Work(n, server.url(f"/page?n={n}")) for n in range(1000)]
    results = await fetch_all(opened(), works)
    assert [r.outcome.id for r in results] == list(range(1000))
    assert {(r.outcome.failure, r.outcome.status) for r in results} == {("", 200)}
    assert sorted(server.paths()) == sorted(f"/page?n={n}" for n in range(1000))


async def test_a_long_body_does_not_hold_up_the_results_of_others(
    opened: Open, server: HostileServer
) -> None:
    server.routes["/long"] = repeats(b"HTTP/1.1 200 OK\r\n\r\n", b"z" * 65_536)
    downloader = opened(body_limit=2**32, time_limit=30.0)
    long = asyncio.ensure_future(fetch(downloader, Work(0, server.url("/long"))))
    await until(lambda: server.busy, step=0.005)
    async with asyncio.timeout(5):
        assert (await fetch(downloader, Work(1, server.url("/page")))).outcome.status == 200
    assert not long.done()
    await downloader.close()
    assert (await long).outcome.failure == "lost"


async def test_a_receiver_that_fails_costs_no_other_result(
    opened: Open, server: HostileServer, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_fetched: Fetched) -> None:
        raise ValueError("on purpose")

    downloader = opened()
    downloader.start(Work(1, server.url("/page")), fail)
    results = await fetch_all(downloader, [Work(n, server.url("/page")) for n in range(5)])
    assert [r.outcome.status for r in results] == [200] * 5
    await until(lambda: not downloader.active, step=0.005)
    assert "on purpose" in caplog.text


async def test_a_thread_that_dies_gives_everything_back(
    opened: Open, server: HostileServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.routes["/hang"] = silence
    downloader = opened()
    waiting = asyncio.ensure_future(fetch(downloader, Work(1, server.url("/hang"))))
    await until(lambda: server.busy, step=0.005)
    # The thread finds something in its inbox that is not a request.
    downloader._engine._inbox.append(None)  # type: ignore[arg-type]  # on purpose
    late = await fetch(downloader, Work(2, server.url("/page")))
    assert ((await waiting).outcome.failure, late.outcome.failure) == ("lost", "lost")
    after = await fetch(downloader, Work(3, server.url("/page")))
    assert (after.outcome.failure, downloader.active) == ("lost", 0)
    assert "a download thread failed" in caplog.text


def test_the_registry_names_what_there_is() -> None:
    offered = kinds(SystemClock(), Random(1), EgressSettings(allow=LOOPBACK))
    web = ("http", "https")
    assert {name: kind.schemes for name, kind in offered.items()} == {"http": web, "curl": web}
