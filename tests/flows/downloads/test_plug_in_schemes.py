"""Plug-in URI schemes (D6): the worked example, found by its entry point, end to end."""

from __future__ import annotations

import asyncio
import json
import threading
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any

import pytest

from skep.archive.frames import read_records, split_response
from skep.downloaders.ports import Downloader, Fetched
from skep.downloaders.refused_kind import offered
from skep.downloaders.registry import kinds
from skep.downloaders.schemes import known_kinds, known_schemes
from skep.jobs.request_validation import Validator
from skep.model.request import Work
from skep.model.run import RunSettings
from skep.runtime.clock import SystemClock
from skep.settings import AgentSettings, EgressSettings

EXAMPLE = Path(__file__).parents[3] / "examples" / "enterprise"
LOOPBACK = EgressSettings(allow=("127.0.0.0/8",))


def install(folder: Path, entry: str) -> None:
    """What an installer leaves: a folder that names the entry points of a package."""
    info = folder / "skep_enterprise-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: skep-enterprise\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text(f"[skep.downloaders]\nenterprise = {entry}\n")


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The example as `pip install` would bring it."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    install(tmp_path, project["entry-points"]["skep.downloaders"]["enterprise"])
    monkeypatch.syspath_prepend(str(EXAMPLE))
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.fixture
def registry(example: None) -> Iterator[str]:
    server = import_module("registry_site").registry()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


async def fetch(downloader: Downloader, uri: str) -> Fetched:
    end: asyncio.Future[Fetched] = asyncio.get_running_loop().create_future()
    downloader.start(Work(1, uri), end.set_result)
    async with asyncio.timeout(20):
        return await end


async def test_three_pages_become_one_document(registry: str) -> None:
    known = kinds(SystemClock(), Random(1), LOOPBACK)
    assert offered(known.values()) == ("http", "curl", "enterprise")
    downloader = known["http"].open("run", RunSettings())
    try:
        fetched = await fetch(downloader, f"enterprise://{registry}/HRB-1001")
        page = await fetch(downloader, f"http://{registry}/companies/c2")
        missing = await fetch(downloader, f"enterprise://{registry}/HRB-7")
    finally:
        await downloader.close()
    company: dict[str, Any] = json.loads(split_response(read_records(fetched.frames)[0]).body)
    assert company["name"] == "Imkerei Lindenhof GmbH"
    assert company["filings"] == [{"year": 2024, "kind": "annual report"}]
    assert page.outcome.status == 200, "other schemes go to the run's own downloader"
    assert missing.outcome.failure == "status"
    assert missing.outcome.detail == "the registry knows no company 'HRB-7'"


async def test_the_egress_guard_holds_for_plug_ins(registry: str) -> None:
    downloader = kinds(SystemClock(), Random(1), EgressSettings())["http"].open("r", RunSettings())
    try:
        fetched = await fetch(downloader, f"enterprise://{registry}/HRB-1001")
    finally:
        await downloader.close()
    assert fetched.outcome.failure == "blocked"


async def test_an_operator_can_switch_it_off(registry: str) -> None:
    agent = AgentSettings(kinds_off=("enterprise",), code="never")
    known = kinds(SystemClock(), Random(1), LOOPBACK, agent=agent)
    assert offered(known.values()) == ("http", "curl")
    downloader = known["http"].open("run", RunSettings())
    try:
        fetched = await fetch(downloader, f"enterprise://{registry}/HRB-1001")
    finally:
        await downloader.close()
    assert "'enterprise' is disabled on this agent" in fetched.outcome.detail


def test_a_center_takes_what_installed_plug_ins_claim(example: None) -> None:
    assert known_kinds() == ("http", "curl", "python", "shell", "enterprise")
    validator = Validator(known_schemes(), Random(1), known_kinds())
    row = validator.rows(["enterprise://registry.example/HRB-1"], 5, 0.0)[0]
    assert row.uri == "enterprise://registry.example/HRB-1"
    validator.check_settings(RunSettings(downloader="enterprise"))


async def test_a_broken_plug_in_affects_no_other_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, "no_such_package:Kind")
    monkeypatch.syspath_prepend(str(tmp_path))
    known = kinds(SystemClock(), Random(1), LOOPBACK)
    assert offered(known.values()) == ("http", "curl")
    fetched = await fetch(known["enterprise"].open("run", RunSettings()), "enterprise://x/1")
    assert "cannot load the plug-in" in fetched.outcome.detail
    assert known_schemes() == ("http", "https")
