"""A client that a generator makes from the API's description, used against a real center.

The generator is openapi-python-client as it is; nothing of the client is written here.
"""

from __future__ import annotations

import asyncio
import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, Self

import msgspec
import pytest

from skep.center.app import api_table
from skep.center.http.openapi import describe, operation_id
from skep.downloaders.registry import kinds as real_kinds
from skep.runtime.clock import SystemClock
from skep.settings import AgentSettings, EgressSettings
from skep.testing.doubles.toy_agent import running_agent
from skep.testing.grounds.centers import RunningCenter, running_center
from skep.testing.polling import until
from skep.testing.site import DemoSite

#: As docs/how-to/api.md has it: two answers are files.
CONFIGURATION = """\
content_type_overrides:
  application/zip: application/octet-stream
  application/zstd: application/octet-stream
post_hooks: []
"""
TABLE = api_table()
PACKAGE = "generated_skep_client"
LOOPBACK = EgressSettings(allow=("127.0.0.0/8",))
FAST = AgentSettings(concurrency=4, report_every=0.1, lease_wait=1.0, drain_seconds=2.0)


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The name of the package, which can be imported meanwhile. Warnings are failures: an
    operation that the generator leaves out is one that no client can call."""
    folder = tmp_path_factory.mktemp("client")
    (folder / "openapi.json").write_bytes(msgspec.json.encode(describe(TABLE)))
    (folder / "config.yaml").write_text(CONFIGURATION)
    command = [sys.executable, "-m", "openapi_python_client", "generate"]
    command += ["--path", "openapi.json", "--config", "config.yaml", "--fail-on-warning"]
    command += ["--meta", "none", "--output-path", str(folder / PACKAGE)]
    made = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stdout + made.stderr
    sys.path.insert(0, str(folder))
    try:
        yield PACKAGE
    finally:
        sys.path.remove(str(folder))
        for name in [name for name in sys.modules if name.partition(".")[0] == PACKAGE]:
            del sys.modules[name]


class Client:
    """Looks the generated functions and classes up by their names."""

    def __init__(self, package: str, url: str, token: str) -> None:
        self._package = package
        self._client = importlib.import_module(package).AuthenticatedClient(url, token)
        self._tags = {operation_id(row): row.tag for row in TABLE}

    async def __aenter__(self) -> Self:
        await self._client.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.__aexit__()

    def model(self, name: str, **fields: Any) -> Any:
        return getattr(importlib.import_module(f"{self._package}.models"), name)(**fields)

    async def call(self, operation: str, *path: Any, **more: Any) -> Any:
        place = f"{self._package}.api.{self._tags[operation]}.{operation}"
        module = importlib.import_module(place)
        return await module.asyncio(*path, client=self._client, **more)


def test_every_operation_has_a_function(generated: str) -> None:
    """U1: under its tag, by its operation id."""
    for row in TABLE:
        place = f"{generated}.api.{row.tag}.{operation_id(row)}"
        assert callable(importlib.import_module(place).asyncio_detailed), place


async def test_a_generated_client_submits_waits_and_reads(generated: str, tmp_path: Path) -> None:
    """U1: open a run, submit, wait, read states, bodies and metadata, mark, finish."""
    async with (
        DemoSite() as site,
        running_center(tmp_path / "center") as center,
        Client(generated, center.url, center.admin.token) as client,
    ):
        settings = client.model("AskedSettings", retries=1, robots=False)
        opened = await client.call(
            "open_run", "books", body=client.model("OpenRun", settings=settings)
        )
        assert (opened.run.id, opened.run.settings.retries) == ("books", 1)
        noted = client.model("NewRequestMeta")
        noted["page"] = 2
        second = client.model("NewRequest", uri=f"{site.url}/page/2", meta=noted)
        taken = await client.call("submit_requests", "books", body=[f"{site.url}/page/1", second])
        assert (taken.new, taken.known) == (2, 0)
        async with _agent(center, tmp_path):
            await until(lambda: _done(client, 2))
        await _read(client, site)


def _agent(center: RunningCenter, folder: Path) -> Any:
    kinds = real_kinds(SystemClock(), Random(3), LOOPBACK)
    return running_agent([center.url], center.agent.token, folder / "agent", kinds, FAST)


async def _done(client: Client, count: int) -> bool:
    view = await client.call("get_run", "books")
    assert view.unaccounted == 0
    return bool(view.ledger.done == count)


async def _read(client: Client, site: DemoSite) -> None:
    found = await client.call("list_finished_requests", "books", limit=10)
    requests = {one.uri: one for block in found.blocks for one in block.requests}
    assert set(requests) == {f"{site.url}/page/1", f"{site.url}/page/2"}
    assert {(one.state, one.status) for one in requests.values()} == {("done", 200)}
    second = requests[f"{site.url}/page/2"]
    assert second.meta["page"] == 2
    body = await client.call("get_request_body", second.id)
    assert body.payload.read() == site.respond("/page/2").body
    ids = [block.id for block in found.blocks]
    marked = await client.call(
        "mark_blocks_collected", "books", body=client.model("Collect", blocks=ids)
    )
    assert marked.blocks == len(ids)
    ended = await client.call("change_run", "books", "finish")
    assert ended.run.state == "finished"
    listed = await client.call("list_runs", limit=5)
    assert [run.id for run in listed.items] == ["books"]


async def test_a_generated_client_reads_errors(generated: str, tmp_path: Path) -> None:
    """U1: a problem comes back as what it is, with its stable code."""
    async with (
        running_center(tmp_path / "center") as center,
        Client(generated, center.url, center.admin.token) as client,
        Client(generated, center.url, "wrong") as stranger,
    ):
        unknown = await client.call("get_run", "nosuch")
        assert (unknown.code, unknown.status, unknown.retryable) == ("unknown_run", 404, False)
        refused = await asyncio.gather(stranger.call("list_runs"), stranger.call("get_ledger"))
        assert [one.code for one in refused] == ["unauthorized", "unauthorized"]
