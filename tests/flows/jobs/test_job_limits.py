"""Limits of jobs as a center assembles them: every connection that a job names follows them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from skep.errors import ConfigurationError
from skep.jobs.definitions.connection_limits import job_limits
from skep.model.jobs.job import Job, JobRun, SinkPart, SpiderPart
from skep.model.run import Run, RunSettings
from skep.model.states import RunState
from skep.settings import Settings
from skep.store.ports.checkpoints import ItemRow
from skep.streams.registry import open_sink
from skep.testing.conformance.sink import pages
from skep.testing.grounds.centers import RunningCenter, running_center
from skep.testing.polling import until

WHY = "add the host to jobs.allow_hosts"


class Inner:
    """A server on loopback that counts its callers."""

    def __init__(self) -> None:
        self.callers = 0
        self.port = 0

    async def take(self, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.callers += 1
        writer.close()


@pytest.fixture
async def inner() -> AsyncIterator[Inner]:
    made = Inner()
    server = await asyncio.start_server(made.take, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    yield made
    server.close()


@pytest.fixture
async def center(tmp_path: Path) -> AsyncIterator[RunningCenter]:
    """With the default rules: jobs may not connect to this machine."""
    async with running_center(tmp_path, jobs_keep_every=0.05, jobs_deliver_first=0.05) as running:
        yield running


@pytest.mark.parametrize("scheme", ["mysql", "postgresql"])
async def test_a_query_of_a_job_follows_the_rules(
    center: RunningCenter, inner: Inner, scheme: str
) -> None:
    """S1, S6: the generator of a real center ends with the reason; no connection was made."""
    url = f"{scheme}://x@127.0.0.1:{inner.port}/d"
    job = {"generators": [{"kind": "sql", "url": url, "query": "SELECT 1"}]}
    assert (await center.admin.put("/api/v1/jobs/q", job)).status == 200
    run = (await center.admin.post("/api/v1/jobs/q/run")).json()["run"]

    async def reason() -> str:
        row = await center.services.store.job_runs.get(run)
        return row.outcome if row else ""

    assert WHY in await until(reason)
    assert inner.callers == 0


@pytest.mark.parametrize("scheme", ["http", "redis", "mysql", "postgresql", "mongodb", "kafka"])
async def test_a_sink_of_a_job_follows_the_rules(
    center: RunningCenter, inner: Inner, scheme: str
) -> None:
    """S1, S6: the delivery of a real center fails with the reason; no connection was made."""
    path = {"http": "hook", "redis": "0?list=a", "kafka": "topic"}.get(scheme, "d")
    await deliver(center, f"{scheme}://127.0.0.1:{inner.port}/{path}")

    async def error() -> str:
        return (await center.services.store.deliveries.of("r"))[0].delivery.error

    assert WHY in await until(error)
    assert inner.callers == 0


async def deliver(center: RunningCenter, url: str) -> None:
    """A run of a job with one item that its sink does not have yet."""
    store, now = center.services.store, center.services.clock.now()
    job = Job("crawl", spider=SpiderPart("crawl.py"), sinks=(SinkPart(url),))
    await store.jobs.save(job, None, "test", now)
    await store.runs.create(Run("r", "crawl", RunState.RUNNING, RunSettings(), now))
    # Not open: no spider is started for it.
    name = center.services.name
    held = JobRun("r", "crawl", "once", 1, now, holder=name, held_until=now, lease=1, open=False)
    held = await store.job_runs.begin(held)
    driver = await store.checkpoints.take_over("r")
    row = ItemRow(0, 0, msgspec.msgpack.encode({"url": "http://a/"}))
    await store.checkpoints.checkpoint("r", driver, [], [row], [], now)
    await center.services.jobs.deliverer.open(held, job.sinks)


async def test_a_job_signs_only_with_variables_that_a_setting_lists(center: RunningCenter) -> None:
    """S6: refused when the job is stored, by the settings of this center."""
    sink = "https://203.0.113.1/hook?secret=HOME"
    job: dict[str, Any] = {"spider": {"path": "crawl.py"}, "sinks": [sink]}
    refused = await center.admin.put("/api/v1/jobs/hook", job)
    assert refused.status == 400
    assert "jobs.sink_secrets" in refused.content.decode()


async def test_a_producer_that_is_made_anew_is_judged_again(inner: Inner) -> None:
    """S6: after a failure the client of Kafka is a new one; its brokers may lead elsewhere now."""
    limits = job_limits(Settings())
    sink = open_sink(f"kafka://127.0.0.1:{inner.port}/topic?timeout=0.5", limits=limits)
    with pytest.raises(ConfigurationError, match=WHY):
        await sink.write(pages(1))  # as after a failure: `open` was before it
    await sink.close()
    assert inner.callers == 0
