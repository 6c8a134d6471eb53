"""An agent as a process: signals, kills, and children that must not be left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from skep.errors import StoreDown
from skep.testing.doubles.center import CenterDouble, center_double
from skep.testing.doubles.toy_agent import fill
from skep.testing.polling import until

AGENT_PROGRAM = """
import asyncio, sys
from pathlib import Path
from random import Random
from skep.agent.process_signals import run_until_signalled
from skep.runtime.clock import SystemClock
from skep.settings import AgentSettings
from skep.testing.doubles.toy_agent import ToyKind, build_agent
from skep.wire.client import CenterClient

async def main(url, token, folder):
    settings = AgentSettings(concurrency=8, report_every=5.0, drain_seconds=0.5)
    async with CenterClient([url], token, SystemClock(), Random(1)) as client:
        toy = ToyKind(seconds=0.2)
        return await run_until_signalled(build_agent(client, Path(folder), settings, {"toy": toy}))

sys.exit(asyncio.run(main(*sys.argv[1:])))
"""


@pytest.fixture
async def center() -> AsyncIterator[CenterDouble]:
    async with center_double() as double:
        yield double


async def start_process(center: CenterDouble, folder: Path) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", AGENT_PROGRAM, center.url, center.token, str(folder)
    )


async def test_sigterm_under_load_orphans_nothing(center: CenterDouble, tmp_path: Path) -> None:
    """Fault 47: every block is ended or given back when the process is gone, exit code 0."""
    fill(center, blocks=30)
    for _ in range(3):
        center.beats.clear()
        process = await start_process(center, tmp_path)
        await center.until(lambda: len(center.beats) > 4)
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(5):
            assert await process.wait() == 0
        waiting = {block.id for block in center.ready}
        ended = {block.id for block in center.blocks.values() if block.ended}
        assert waiting | ended == set(center.blocks)
    assert len(center.stored) == len(set(center.stored))
    assert len(center.stored) > 0


async def test_a_killed_agent_comes_back_as_itself_and_sends_what_it_kept(
    center: CenterDouble, tmp_path: Path
) -> None:
    """Faults 12, 18, 22: kill -9 while results lie on disk."""
    fill(center, blocks=1)
    center.fail("block", StoreDown("later"), times=1000)
    process = await start_process(center, tmp_path)
    await center.until(
        lambda: bool(center.beats) and center.beats[-1].vitals.outbox == 10, seconds=15
    )
    process.kill()
    await process.wait()
    center._faults.clear()
    process = await start_process(center, tmp_path)
    await center.until(lambda: center.open_requests == 0)
    process.terminate()
    assert await process.wait() == 0
    assert len({registration.id for registration in center.registrations}) == 1


async def test_a_killed_agent_gets_its_own_blocks_back_at_once(
    center: CenterDouble, tmp_path: Path
) -> None:
    """Fault 22: it registers with what it holds, which is nothing, and starts again."""
    fill(center, blocks=4)
    process = await start_process(center, tmp_path)
    await center.until(lambda: bool(center.beats) and len(center.beats[-1].holding) > 0)
    process.kill()
    await process.wait()
    process = await start_process(center, tmp_path)
    await center.until(lambda: center.open_requests == 0)
    process.terminate()
    assert await process.wait() == 0
    assert sorted(center.stored) == list(range(40))


PARENT_PROGRAM = """
import asyncio, sys
from random import Random
from skep.agent.processes import supervise
from skep.runtime.clock import SystemClock

child = "import signal, sys, time, pathlib, os;" \\
    "signal.signal(signal.SIGTERM, lambda *_: sys.exit(0));" \\
    "pathlib.Path(sys.argv[1], sys.argv[2] + '-' + str(os.getpid())).touch();" \\
    "time.sleep(3600)"

def argv(number):
    return [sys.executable, "-c", child, sys.argv[1], str(number)]

sys.exit(asyncio.run(supervise(argv, 2, SystemClock(), Random(1))))
"""


def children(folder: Path) -> dict[int, list[int]]:
    """Process ids by the number of the child, as each has written them."""
    found: dict[int, list[int]] = {1: [], 2: []}
    for path in folder.iterdir():
        number, process = path.name.split("-")
        found[int(number)].append(int(process))
    return found


async def start_parent(folder: Path) -> asyncio.subprocess.Process:
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", PARENT_PROGRAM, str(folder))
    await until(lambda: all(children(folder).values()))
    return parent


def runs(process: int) -> bool:
    """It is neither gone nor waiting until its absence is noticed."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def all_gone(folder: Path) -> bool:
    return not any(runs(one) for several in children(folder).values() for one in several)


async def test_a_child_that_died_is_started_again_and_sigterm_ends_all(tmp_path: Path) -> None:
    parent = await start_parent(tmp_path)
    os.kill(children(tmp_path)[1][0], signal.SIGKILL)
    await until(lambda: len(children(tmp_path)[1]) == 2)
    parent.terminate()
    assert await parent.wait() == 0
    assert len(children(tmp_path)[2]) == 1
    assert all_gone(tmp_path)


async def test_no_child_outlives_a_parent_that_was_killed(tmp_path: Path) -> None:
    parent = await start_parent(tmp_path)
    parent.kill()
    await parent.wait()
    await until(lambda: all_gone(tmp_path))
