"""`skep app` as people type it, against a real center with an agent by hand (A8)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from skep.cli.commands.jobs.app import HEAD
from skep.cli.main import run as run_line
from skep.cli.terminal.exit_codes import ExitCode
from skep.testing.doubles.app_agent import ManualAppAgent
from skep.testing.faultproxy import FaultProxy
from skep.testing.grounds.centers import RunningCenter, running_center
from skep.testing.polling import until

IMAGE = {"app": {"image": "example.org/app:1"}, "placement": {"strategy": "fixed", "n": 2}}


@pytest.fixture
async def center(tmp_path: Path) -> AsyncIterator[RunningCenter]:
    async with running_center(tmp_path, jobs_keep_every=0.05) as running:
        yield running


class Line:
    """The command line, in a thread of this process."""

    def __init__(self, center: RunningCenter, capsys: pytest.CaptureFixture[str]) -> None:
        self._folder = str(center.folder)
        self._capsys = capsys
        self._heard = ""

    async def of(self, *words: str) -> int:
        """Any command; what it says is `heard`."""
        return await asyncio.to_thread(run_line, [*words, "--data", self._folder])

    def heard(self) -> str:
        """Everything that was said so far."""
        self._heard += "".join(self._capsys.readouterr())
        return self._heard

    async def __call__(self, *words: str) -> tuple[int, str]:
        arguments = ["app", words[0], "--data", self._folder, *words[1:]]
        code = await asyncio.to_thread(run_line, arguments)
        out, errors = self._capsys.readouterr()
        return code, out + errors

    async def data(self, *words: str) -> Any:
        code, out = await self(*words, "--json")
        assert code == 0, out
        return msgspec.json.decode(out)


@pytest.fixture
def line(center: RunningCenter, capsys: pytest.CaptureFixture[str]) -> Line:
    return Line(center, capsys)


async def wait_for(center: RunningCenter, run: str, *states: str) -> None:
    await until(
        lambda: center.services.store.apps.of(run),
        lambda found: [one.state for one in found] == [*states],
    )


async def test_instances_and_logs_on_the_command_line(center: RunningCenter, line: Line) -> None:
    """From `ls` to `stop`; what a program wrote cannot move the cursor."""
    assert (await line("ls"))[1] == "no application job has a run\n"
    hands = [await ManualAppAgent(center.agent, name).start() for name in ("a1", "a2")]
    assert (await center.admin.put("/api/v1/jobs/app", {"name": "app", **IMAGE})).status == 200
    assert "was never run" in (await line("ls", "app"))[1]
    run = (await center.admin.post("/api/v1/jobs/app/run")).json()["run"]
    await wait_for(center, run, "running", "running")
    (shown,) = (await line.data("ls", "app"))["runs"]
    assert shown["run"] == run
    assert {one["instance"]["agent"] for one in shown["items"]} == {"a1", "a2"}
    _, text = await line("ls")
    assert text.splitlines()[0] == f"run {run} of job app is running"
    assert tuple(text.splitlines()[1].split()) == HEAD
    by_no = {key[1]: hand for hand in hands for key in hand.has}
    await by_no[0].write((run, 0), b"one\n\x1b[2Jtwo\r\n\xffthree")
    await by_no[1].write((run, 1), b"other\n")
    code, text = await line("logs", run)
    assert code == 0
    assert text.splitlines() == [
        "0 | one",
        "0 | \\x1b[2Jtwo",
        "0 | \ufffdthree",
        "1 | other",
    ]
    for count, lines in ((0, ""), (1, "\ufffdthree\n"), (2, "\\x1b[2Jtwo\n\ufffdthree\n")):
        asked = ("logs", "app", "--instance", "0", "--tail", str(count))
        assert (await line(*asked))[1] == lines
    follows = asyncio.create_task(line("logs", run, "--instance", "1", "--follow"))
    await by_no[1].write((run, 1), b"last words\n")
    await by_no[1].end((run, 1), 0)
    assert (await follows)[1] == "other\nlast words\n"
    acted = await line.data("restart", run, "--instance", "0")
    assert acted["items"][0]["instance"]["round"] == 1
    assert (await line("stop", "app", "--instance", "0"))[1] == (
        f"instance 0 of run {run}: desired state is stopped on agent {by_no[0].id}\n"
    )
    await wait_for(center, run, "stopped", "done")
    assert (await line("stop", run, "--instance", "7"))[0] == ExitCode.NOT_FOUND
    assert (await line("logs", "nobody"))[0] == ExitCode.NOT_FOUND
    for hand in hands:
        await hand.die()


async def test_a_run_that_could_not_start_is_shown_among_the_others(
    center: RunningCenter, line: Line
) -> None:
    """A refused start leaves a line of its job and no run: `ls` says why, and of every job."""
    alone = {"name": "alone", "app": {"image": "example.org/app:1"}}
    for document in ({"name": "app", **IMAGE}, alone):
        path = f"/api/v1/jobs/{document['name']}"
        assert (await center.admin.put(path, document)).status == 200
    hand = await ManualAppAgent(center.agent, "a1").start()
    assert (await center.admin.post("/api/v1/jobs/app/run")).status == 409
    run = (await center.admin.post("/api/v1/jobs/alone/run")).json()["run"]
    await wait_for(center, run, "running")
    code, text = await line("ls")
    assert code == 0, text
    assert f"run {run} of job alone is running" in text
    assert "of job app is not there: could not start: " in text
    code, text = await line("ls", "app")
    assert (code, text.count("2 agents are needed")) == (0, 1)
    code, text = await line("logs", "app")
    assert (code, "is not there: could not start" in text) == (ExitCode.NOT_FOUND, True)
    shown = {kept["run"]: kept["state"] for kept in (await line.data("ls"))["runs"]}
    assert sorted(shown.values()) == ["not there", "running"]
    await hand.die()


async def test_what_runs_is_named_for_what_it_is(center: RunningCenter, line: Line) -> None:
    """A job with an image is not of the kind http, and its end counts no requests."""
    document = {"name": "app", "app": {"image": "example.org/app:1"}}
    assert (await center.admin.put("/api/v1/jobs/app", document)).status == 200
    assert await line.of("job", "ls") == 0
    assert "example.org/app:1" in line.heard()
    hand = await ManualAppAgent(center.agent, "a1").start()
    waits = asyncio.create_task(line.of("job", "run", "app", "--wait"))
    await until(lambda: hand.has)
    (key,) = hand.has
    await hand.end(key, 0)
    assert await waits == 0
    assert f"{key[0]} finished" in line.heard().splitlines()
    await hand.die()


async def test_who_waits_and_who_follows_outlive_centers_that_are_away(
    center: RunningCenter, line: Line
) -> None:
    """Fault 1 for commands that stay: no center answers for a moment, and they go on."""
    document = {"name": "app", "app": {"image": "example.org/app:1"}}
    assert (await center.admin.put("/api/v1/jobs/app", document)).status == 200
    hand = await ManualAppAgent(center.agent, "a1").start()
    async with FaultProxy(int(center.url.rpartition(":")[2])) as proxy:
        where = ("--center", proxy.url)
        waits = asyncio.create_task(line.of("job", "run", "app", "--wait", *where))
        await until(lambda: hand.has)
        (key,) = hand.has
        await hand.write(key, b"before\n")
        follows = asyncio.create_task(line.of("app", "logs", key[0], "--follow", *where))
        await until(lambda: "before" in line.heard())
        proxy.refuse()
        met = proxy.connections
        await until(lambda: proxy.connections >= met + 3)
        await hand.write(key, b"after\n")
        await hand.end(key, 0)
        proxy.heal()
        assert (await waits, await follows) == (0, 0)
    said = line.heard().splitlines()
    assert [text for text in said if text in {"before", "after"}] == ["before", "after"]
    assert f"{key[0]} finished" in said
    assert any("; retrying for 60 s" in text for text in said)
    await hand.die()
