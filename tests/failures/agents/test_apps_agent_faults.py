"""Applications that misbehave, agents that are killed, centers that are away (A8)."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from skep.agent.apps.orphan_processes import marked
from skep.agent.apps.process import Processes
from skep.agent.apps.runner_contract import Start
from skep.downloaders.code.isolation import Isolation, detect
from skep.errors import StoreDown
from skep.model.jobs.app import AppLimits, AppSpec, InstanceState
from skep.settings import AgentSettings
from skep.testing.doubles.apps_center import AppsDouble, apps_double, hosting_agent
from skep.testing.fleet import tell
from skep.testing.polling import until
from skep.testing.processes import AgentProcess

pytestmark = pytest.mark.needs("bwrap")

RUNNING, DONE, FAILED = InstanceState.RUNNING, InstanceState.DONE, InstanceState.FAILED
#: Forks until the kernel says no.
BOMB = """
import os, time
made = 0
try:
    while True:
        if os.fork() == 0:
            time.sleep(3600)
        made += 1
except BlockingIOError:
    print("no more after", made, flush=True)
"""
HOG = "piece = []\nwhile True: piece.append(bytearray(2**20))\n"
SLEEPERS = "#!/bin/sh\nsetsid sleep 3600 &\nsleep 3600 &\necho begun\nwait\n"
#: Numbered lines, some of them while the center is away.
LINES = """#!/bin/sh
n=0
while [ $n -lt 120 ]; do n=$((n+1)); echo "line $n"; sleep 0.01; done
"""
EVERY_LINE = b"".join(b"line %d\n" % number for number in range(1, 121))


@pytest.fixture
async def center() -> AsyncIterator[AppsDouble]:
    async with apps_double() as double:
        yield double


@pytest.fixture
def token_file(center: AppsDouble, tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text(center.token)
    return file


async def test_hostile_applications_are_contained_and_the_agent_goes_on(
    center: AppsDouble, tmp_path: Path
) -> None:
    """Fault 63: a fork bomb, a memory hog and endless output beside one that behaves."""
    digest = center.give(
        {"bomb.py": BOMB, "hog.py": HOG, "yes": "#!/bin/sh\nexec yes endless\n", "fine": LINES}
    )
    settings = AgentSettings(app_log_bytes=2**20, app_processes=40, drain_seconds=1.0)
    async with hosting_agent(center, tmp_path, settings) as agent:
        # What it writes is not taken: it fills its own room and no more.
        center.fail("app-log", StoreDown("not now"), times=1_000_000)
        endless = await center.want(0, package=digest, command=("yes",))
        room = tmp_path / "apps" / "instances"
        await until(
            lambda: any(int(path.name) > 2**21 for path in room.glob("*/log/*")), seconds=60
        )
        assert _bytes_below(room) <= 2**20 + 2 * 256 * 1024
        center.heal("app-log")
        await center.until(lambda: center.dropped.get(endless, 0) > 0, seconds=60)
        bomb = await center.want(1, package=digest, command=("python3", "bomb.py"), restart="never")
        hog = await center.want(
            2, package=digest, command=("python3", "hog.py"), restart="never",
            limits=AppLimits(memory=200),
        )  # fmt: skip
        fine = await center.want(3, package=digest, command=("fine",))
        await center.until_state(fine, DONE)
        assert (await center.until_state(bomb, DONE)).exit_code == 0
        assert (await center.until_state(hog, FAILED)).exit_code == 1
        assert center.state(endless) is RUNNING
        await center.want_no_more(0)
        mark = (f"SKEP_AGENT={agent.agent.id}".encode(),)
        await until(lambda: not marked(mark), seconds=60)
    made = int(bytes(center.logs[bomb]).split()[-1])
    tell("63", processes=made + 1, dropped=center.dropped[endless], left=0)
    assert 20 <= made <= 41
    assert b"MemoryError" in center.logs[hog]
    assert bytes(center.logs[fine]) == EVERY_LINE
    assert set(bytes(center.logs[endless]).split()) <= {b"endless"} | set(_halves(b"endless"))


def _bytes_below(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:
            continue  # the oldest piece, gone meanwhile
    return total


def _halves(word: bytes) -> list[bytes]:
    """Where bytes are missing, two parts of a word may stand together."""
    starts = [word[:cut] for cut in range(len(word) + 1)]
    ends = [word[cut:] for cut in range(len(word) + 1)]
    return [start + end for start in starts for end in ends]


async def test_a_killed_agent_leaves_no_orphan(
    center: AppsDouble, tmp_path: Path, token_file: Path
) -> None:
    """SIGKILL of the agent alone: the kernel ends what it had started. The next agent starts
    again what may be started again, and says of the rest what happened."""
    digest = center.give({"sleepers": SLEEPERS})
    agent = AgentProcess(tmp_path / "a", [center.url], token_file)
    try:
        await asyncio.to_thread(agent.start)
        mark = (f"SKEP_AGENT={agent.id}".encode(),)
        key = await center.want(0, package=digest, command=("sleepers",))
        once = await center.want(1, package=digest, command=("sleepers",), restart="never")
        await center.until_log(key, b"begun")
        await center.until_log(once, b"begun")
        assert len(marked(mark)) >= 6
        os.kill(agent.pid, signal.SIGKILL)
        await asyncio.to_thread(agent.wait)
        await until(lambda: not marked(mark), seconds=60)
        await asyncio.to_thread(agent.start)
        await center.until(lambda: bytes(center.logs[key]).count(b"begun") == 2, seconds=60)
        report = await center.until_state(key, RUNNING)
        failed = await center.until_state(once, FAILED)
    finally:
        await asyncio.to_thread(agent.stop)
    assert report.starts == 2
    assert (failed.starts, failed.reason) == (
        1,
        "its agent ended while it was running; it is never restarted",
    )
    assert bytes(center.logs[once]).count(b"begun") == 1
    assert not marked(mark)


async def test_a_log_arrives_completely_and_once(
    center: AppsDouble, tmp_path: Path, token_file: Path
) -> None:
    """The center is away, answers are lost, and the agent is killed when the program has
    ended: every byte arrives, in order, once."""
    digest = center.give({"lines": LINES})
    agent = AgentProcess(tmp_path / "a", [center.url], token_file)
    try:
        await asyncio.to_thread(agent.start)
        key = await center.want(package=digest, command=("lines",), lost_seconds=0)
        await center.until_log(key, b"line 1\n")
        center.lose_answer("app-log")
        await center.until_log(key, b"line 20\n")
        await center.down()
        room = tmp_path / "a" / "agent" / "apps" / "instances"
        await until(
            lambda: any(b"line 120\n" in path.read_bytes() for path in room.glob("*/log/*"))
        )
        os.kill(agent.pid, signal.SIGKILL)
        await asyncio.to_thread(agent.wait)
        center.lose_answer("app-log")
        await center.up()
        await center.want_no_more()
        await asyncio.to_thread(agent.start)
        await center.until_log(key, b"line 120\n")
    finally:
        await asyncio.to_thread(agent.stop)
    assert bytes(center.logs[key]) == EVERY_LINE
    assert key not in center.dropped


@pytest.mark.parametrize("program", ["", detect().bwrap])
async def test_nothing_outlives_its_application(tmp_path: Path, program: str) -> None:
    """Without a box, and in the box of an agent that is not root: what went into a session of
    its own ends with the rest."""
    (tmp_path / "leaves").write_text("#!/bin/sh\nsetsid sleep 3600 &\ntouch $HOME/a\npwd\nexit 6\n")
    (tmp_path / "leaves").chmod(0o755)
    processes = Processes(Isolation(program, "for the test", own_user=False), AgentSettings())
    agent = f"plain-{os.getpid()}"
    start = Start(AppSpec(("leaves",)), "r", 0, 1, agent, tmp_path, tmp_path)
    running = await processes.start(start)
    ending = await running.wait()
    said = os.read(running.output, 1000)
    os.close(running.output)
    assert (ending.code, said.decode()) == (6, f"{tmp_path}\n")
    assert marked((f"SKEP_AGENT={agent}".encode(),)) == []
