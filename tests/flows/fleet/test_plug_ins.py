"""A package adds a downloader kind and a placement strategy: one file, one registration each.

The package is written into a folder, as an installer would leave it, and used by a real center
and two agents in processes of their own.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from skep.testing.processes import AgentProcess, CenterProcess
from skep.wire.api.requests import RequestDetail, WhichRequests
from skep.wire.client.api import CenterApi
from skep.wire.client.http import HttpTransport

PACKAGE = '''
"""Sends messages that are not sent, from the agent that comes last in the alphabet."""

from skep.archive.frames import Exchange, FrameMaker
from skep.downloaders.ports import Fetched
from skep.model.downloader_kinds import DownloaderKind
from skep.model.fleet.strategy_traits import Strategy
from skep.model.request import Outcome
from skep.placement.strategies.shared import Shared


class Messages:
    traits = DownloaderKind("messages", any_scheme=True)
    name = "messages"
    schemes = ()

    def __init__(self, plug_in):
        self._frames = FrameMaker(plug_in.clock, plug_in.rng)

    def open(self, run, settings):
        return Sender(self._frames)


class Sender:
    active = 0

    def __init__(self, frames):
        self._frames = frames

    def start(self, work, done):
        body = b"sent to " + work.uri.encode()
        frames = self._frames.exchange_frames(
            Exchange(work.uri, status=200, reason="OK", body=body)
        )
        outcome = Outcome(work.id, status=200, received=len(body), length=len(frames))
        done(Fetched(outcome, frames))

    async def close(self):
        pass


class LastAgents:
    traits = Strategy("last", chooses=True, shares=True)

    def choose(self, fit, wanted, rng):
        names = {view.registration.name: view.id for view in fit}
        return [names[name] for name in sorted(names)[-wanted:]]

    def placing(self, allocation, now):
        present = any(now.present(agent) for agent in allocation.agents)
        return Shared(allocation.target) if present else None
'''
ENTRY_POINTS = """
[skep.downloaders]
messages = skep_messages:Messages
[skep.placement]
last = skep_messages:LastAgents
"""
JOB = """
name: greetings
downloader: messages
placement: {strategy: last, n: 1}
settings: {block_size: 2}
requests: [sms://49/1, sms://49/2, pager://7, pager://8, sms://49/5]
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What an installer leaves: the module, and a folder that names its entry points."""
    folder = tmp_path_factory.mktemp("site-packages")
    (folder / "skep_messages.py").write_text(PACKAGE)
    info = folder / "skep_messages-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: skep-messages\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    return folder


@pytest.fixture(scope="module")
def center(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CenterProcess]:
    """With the agents `middle` and `zeta`, which have the package, and `zz`, which has not."""
    folder, installed = tmp_path_factory.mktemp("fleet"), {"PYTHONPATH": str(package)}
    with ExitStack() as stack:
        running = stack.enter_context(CenterProcess(folder / "center", installed))
        for name, env in (("middle", installed), ("zeta", installed), ("zz", {})):
            agent = AgentProcess(folder / name, [running.url], running.agent_token, env)
            stack.enter_context(agent)
        yield running


@pytest.fixture
async def api(center: CenterProcess) -> AsyncIterator[CenterApi]:
    transport = HttpTransport([center.url], center.admin_token)
    try:
        yield CenterApi(transport)
    finally:
        await transport.close()


async def job(center: CenterProcess, *arguments: str, text: str = "") -> str:
    """`skep job ...`, as people type it: its exit code and what it wrote."""
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "skep", "job", *arguments],
        input=text,
        env={**os.environ, **center.env, "SKEP_DATA": str(center.folder)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return f"{done.returncode} {done.stdout.strip()}{done.stderr.strip()}"


async def requests_of(api: CenterApi, run: str) -> list[RequestDetail]:
    found = await api.requests.list(WhichRequests(run=run))
    return [await api.requests.show(one.id) for one in found.items]


async def test_both_are_used_end_to_end(center: CenterProcess, api: CenterApi) -> None:
    """The requests are done by the package's downloader on the agent that its strategy chose."""
    assert await job(center, "apply", "-", text=JOB) == "0 created greetings (revision 1)"
    ran = await job(center, "run", "greetings", "--wait", "--timeout", "50")
    assert ran.startswith("0 "), ran
    run = (await api.runs.list()).items[0]
    details = await requests_of(api, run.id)
    assert [one.request.state for one in details] == ["done"] * 5
    names = {one.agent.id: one.agent.registration.name for one in (await api.agents.list()).items}
    assert sorted(names.values()) == ["middle", "zeta", "zz"]
    used = {names[attempt.agent] for one in details for attempt in one.attempts}
    assert used == {"zeta"}, "the last in the alphabet that has the downloader"
    async with api.requests.body(details[2].request.id) as body:
        assert await body.read() == b"sent to pager://7/"
    view = await api.placement.of_run(run.id)
    assert (view.words, names[view.agents[0].agent]) == ("last(1)", "zeta")


async def test_its_traits_are_those_that_a_center_checks_by(center: CenterProcess) -> None:
    """It takes every scheme, no code and no content rules: as its traits say."""
    plain = await job(center, "apply", "-", text=JOB.replace("downloader: messages", ""))
    assert "no downloader supports sms://" in plain
    code = JOB.replace("messages", "{kind: messages, code: text}")
    assert "is not used by messages" in await job(center, "apply", "-", text=code)
    rules = JOB.replace("block_size: 2", "content: {max_bytes: 9}")
    assert "content rules are for curl and http" in await job(center, "apply", "-", text=rules)
    unknown = await job(center, "apply", "-", text=JOB.replace("last", "first"))
    known = "any, fixed, chained, hashed, last"
    assert f"placement.strategy: must be one of {known}; it is 'first'" in unknown
