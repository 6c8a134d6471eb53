"""Applications on a real agent, with a center's double that says what it wants (A8)."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from skep.agent.apps.capabilities import look
from skep.agent.apps.orphan_processes import marked
from skep.agent.apps.packages import Packages
from skep.agent.apps.runner_contract import CannotRun
from skep.agent.apps.wheel_install import Installer
from skep.downloaders.code.isolation import detect, isolation_of
from skep.model.jobs.app import AppLimits, AppSpec, InstanceState
from skep.runtime.clock import SystemClock
from skep.settings import AgentSettings
from skep.testing.doubles.apps_center import AppsDouble, apps_double, hosting_agent
from skep.testing.polling import until
from skep.wire.client import CenterClient

pytestmark = pytest.mark.needs("bwrap")

RUNNING, PAUSED, STOPPED = InstanceState.RUNNING, InstanceState.PAUSED, InstanceState.STOPPED
DONE, FAILED, STARTING = InstanceState.DONE, InstanceState.FAILED, InstanceState.STARTING

TELL = """#!/bin/sh
echo "arguments: $*"
echo "folder: $(pwd -P)" >&2
cat data/note.txt
env | sort
id -u
touch here 2>/dev/null || echo "read-only"
touch "$HOME/there" && echo "home"
"""
#: Counts on its output, and says so when it is asked to end.
COUNT = """#!/bin/sh
trap 'echo asked to end; exit 7' TERM
n=0
echo begun
while true; do n=$((n+1)); echo "count $n"; sleep 0.05; done
"""


@pytest.fixture
async def center() -> AsyncIterator[AppsDouble]:
    async with apps_double() as double:
        yield double


async def test_a_package_runs_with_its_command_and_a_clean_environment(
    center: AppsDouble, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A8: its folder, its arguments, its variables, and nothing of the agent's own; its log
    arrives before its end is told."""
    monkeypatch.setenv("AGENTS_OWN_SECRET", "hidden")
    digest = center.give({"tell.sh": TELL, "data/note.txt": "a note\n"})
    async with hosting_agent(center, tmp_path) as agent:
        key = await center.want(
            package=digest, command=("./tell.sh", "a b", "$HOME"), environment={"TOKEN": "x\ny"}
        )
        report = await center.until_state(key, DONE)
        said = bytes(center.logs[key]).decode()
    assert (report.exit_code, report.starts, report.reason) == (0, 1, "exit code 0")
    assert "arguments: a b $HOME\n" in said
    assert "a note\n" in said
    assert "TOKEN=x\ny\n" in said
    assert f"SKEP_AGENT={agent.agent.id}\n" in said
    assert "SKEP_INSTANCE=0\n" in said
    assert "AGENTS_OWN_SECRET" not in said
    assert center.token not in said
    assert "read-only\nhome\n" in said
    if os.geteuid() == 0:
        assert "\n0\n" not in said


async def test_a_package_runs_where_the_data_folder_has_a_relative_name(
    center: AppsDouble, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A8: as with `skep up`, whose folder is `skep-data` by default."""
    monkeypatch.chdir(tmp_path)
    digest = center.give({"tell.sh": TELL, "data/note.txt": "a note\n"})
    async with hosting_agent(center, Path("skep-data/agent")):
        key = await center.want(package=digest, command=("./tell.sh",), restart="never")
        report = await center.until_state(key, DONE)
    assert report.reason == "exit code 0"


async def test_a_program_is_stopped_in_order_and_by_force(
    center: AppsDouble, tmp_path: Path
) -> None:
    digest = center.give({"count": COUNT, "deaf": COUNT.replace("exit 7", "true")})
    async with hosting_agent(center, tmp_path):
        polite = await center.want(0, package=digest, command=("count",), restart="always")
        deaf = await center.want(1, package=digest, command=("deaf",), stop_seconds=0.3)
        await center.until_log(polite, b"begun")
        await center.until_log(deaf, b"begun")
        await center.change(0, state=STOPPED)
        await center.change(1, state=STOPPED)
        told = await center.until_state(polite, STOPPED)
        killed = await center.until_state(deaf, STOPPED)
    assert (told.exit_code, told.reason) == (7, "stopped by command; exit code 7")
    assert center.logs[polite].endswith(b"asked to end\n")
    assert (killed.exit_code, killed.reason) == (137, "stopped by command; signal SIGKILL")


async def test_pause_round_and_token(center: AppsDouble, tmp_path: Path) -> None:
    """Paused all of it stands still; a higher round starts it anew, and so does another token."""
    digest = center.give({"count": COUNT})
    async with hosting_agent(center, tmp_path) as agent:
        mark = (f"SKEP_AGENT={agent.agent.id}".encode(),)
        key = await center.want(package=digest, command=("count",))
        await center.until_log(key, b"count 3\n")
        await center.change(state=PAUSED)
        await center.until_state(key, PAUSED)
        # A process that waits for a processor gets its signal when it has one.
        await until(lambda: stands_still(mark), seconds=10)
        count = bytes(center.logs[key]).count(b"count ")
        await center.change(state=RUNNING)
        await center.until_state(key, RUNNING)
        await center.until_log(key, b"count %d\n" % (count + 5))
        await center.change(round=1)
        await center.until(lambda: bytes(center.logs[key]).count(b"begun") == 2, seconds=60)
        report = await center.until_state(key, RUNNING)
        assert (report.round, report.starts) == (1, 2)
        await center.change(token=2)
        moved = (key[0], key[1], 2)
        await center.until_log(moved, b"begun")
        assert (await center.until_state(moved, RUNNING)).starts == 1
        await center.want_no_more()
        await until(lambda: not list((tmp_path / "apps" / "instances").iterdir()), seconds=60)
    assert b"asked to end" in center.logs[key]


def stands_still(mark: tuple[bytes, ...]) -> bool:
    """Whether there are processes, and the kernel says of each that it is stopped."""
    states = [
        Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] for pid in marked(mark)
    ]
    return bool(states) and set(states) == {"T"}


async def test_restarts_are_counted_and_end(center: AppsDouble, tmp_path: Path) -> None:
    digest = center.give({"fail": "#!/bin/sh\necho again\nexit 3\n"})
    async with hosting_agent(center, tmp_path):
        never = await center.want(0, package=digest, command=("fail",), restart="never")
        once = await center.want(1, package=digest, command=("fail",), restarts=1)
        first = await center.until_state(never, FAILED)
        second = await center.until_state(once, FAILED)
    assert (first.exit_code, first.starts, first.reason) == (3, 1, "exit code 3")
    assert (second.starts, second.reason) == (2, "exit code 3, 2 consecutive times")
    assert center.logs[once] == b"again\nagain\n"
    waiting = [report.reason for report in center.history if report.no == 1]
    assert "exit code 3; retrying in 1 s" in waiting


async def test_limits_hold(center: AppsDouble, tmp_path: Path) -> None:
    """Time, memory and open files, each with its reason."""
    hog = "x = bytearray(300 * 2**20)"
    files = "import os\nfor n in range(200): os.dup(1)"
    digest = center.give({"hog.py": hog, "files.py": files, "count": COUNT})
    async with hosting_agent(center, tmp_path):
        late = await center.want(0, package=digest, command=("count",), limits=AppLimits(time=0.4))
        memory = await center.want(
            1, package=digest, command=("python3", "hog.py"), restart="never",
            limits=AppLimits(memory=128),
        )  # fmt: skip
        many = await center.want(
            2, package=digest, command=("python", "files.py"), restart="never",
            limits=AppLimits(files=64),
        )  # fmt: skip
        over = await center.until_state(late, FAILED)
        await center.until_state(memory, FAILED)
        await center.until_state(many, FAILED)
    assert over.reason == "over its limit of 0.4 s; exit code 7"
    assert b"MemoryError" in center.logs[memory]
    assert b"Too many open files" in center.logs[many]


async def test_what_cannot_run_says_why(center: AppsDouble, tmp_path: Path) -> None:
    digest = center.give({"data.txt": "no program"})
    wrong = center.give({"fine": "#!/bin/sh\n"})
    slip = center.give({"../../slipped": "#!/bin/sh\n"})
    center.packages[wrong] = b"other bytes"
    async with hosting_agent(center, tmp_path):
        keys = [
            await center.want(0, package=digest, command=("nowhere",)),
            await center.want(1, package=digest, command=("data.txt",)),
            await center.want(2, package=wrong, command=("fine",)),
            await center.want(3, package="0" * 64, command=("fine",)),
            await center.want(4, image="some/image", command=("fine",)),
            await center.want(5, package=slip, command=("slipped",)),
        ]
        reasons = [(await center.until_state(key, FAILED)).reason for key in keys]
    assert "neither in the package nor installed on this machine" in reasons[0]
    assert "Permission denied" in reasons[1]
    assert "differs from the announced one" in reasons[2]
    assert "the center refused the package" in reasons[3]
    assert reasons[4] == "this agent does not run images: agent.containers is off"
    assert "leads out of it" in reasons[5]
    assert not (tmp_path / "apps" / "slipped").exists()


@pytest.mark.slow  # two environments are made
async def test_a_wheel_has_an_environment_of_its_own(
    center: AppsDouble, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its script is on the path, and what it needs and cannot be had is a reason."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    about: dict[str, Any] = {
        "package_kind": "wheel",
        "package_name": "toy-1-py3-none-any.whl",
        "restart": "never",
    }
    fine = center.give(wheel())
    needy = center.give(wheel("Requires-Dist: skep-none-such\n"))
    async with hosting_agent(center, tmp_path):
        key = await center.want(0, package=fine, command=("toy", "a b"), **about)
        bad = await center.want(1, package=needy, command=("toy",), **about)
        await center.until_state(key, DONE, 120)
        report = await center.until_state(bad, FAILED, 120)
    assert center.logs[key] == b"toy ['a b']\n"
    assert report.reason.startswith("pip cannot install it: ")
    assert "skep-none-such" in report.reason


def wheel(needs: str = "") -> dict[str, str]:
    """The files of a wheel with one script."""
    about = f"Metadata-Version: 2.1\nName: toy\nVersion: 1\n{needs}"
    tags = "Wheel-Version: 1.0\nGenerator: hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    return {
        "toy.py": "import sys\ndef main():\n    print('toy', sys.argv[1:])\n",
        "toy-1.dist-info/METADATA": about,
        "toy-1.dist-info/WHEEL": tags,
        "toy-1.dist-info/entry_points.txt": "[console_scripts]\ntoy = toy:main\n",
        "toy-1.dist-info/RECORD": "",
    }


async def test_an_agent_that_ends_takes_its_instances_along_and_brings_them_back(
    center: AppsDouble, tmp_path: Path
) -> None:
    """A4: one that was to run runs again; one that had ended stays ended."""
    digest = center.give({"count": COUNT, "once": "#!/bin/sh\necho once\n"})
    async with hosting_agent(center, tmp_path) as agent:
        mark = (f"SKEP_AGENT={agent.agent.id}".encode(),)
        key = await center.want(0, package=digest, command=("count",))
        single = await center.want(1, package=digest, command=("once",), restart="never")
        await center.until_log(key, b"begun")
        await center.until_state(single, DONE)
        assert marked(mark)
    assert marked(mark) == []
    assert center.told[key].state is STARTING
    assert center.told[key].reason == "its agent was stopped"
    async with hosting_agent(center, tmp_path):
        report = await center.until_state(key, RUNNING)
        await center.until(lambda: bytes(center.logs[key]).count(b"begun") == 2, seconds=60)
    assert report.starts == 2
    assert center.logs[single] == b"once\n"
    assert center.told[single].state is DONE


async def test_without_a_center_instances_go_on_and_end_before_others_get_them(
    center: AppsDouble, tmp_path: Path
) -> None:
    digest = center.give({"count": COUNT})
    async with hosting_agent(center, tmp_path) as agent:
        mark = (f"SKEP_AGENT={agent.agent.id}".encode(),)
        key = await center.want(0, package=digest, command=("count",), lost_seconds=1.5)
        stays = await center.want(1, package=digest, command=("count",), lost_seconds=0)
        once = await center.want(
            2, package=digest, command=("count",), lost_seconds=1.5, restart="never"
        )
        await center.until_log(key, b"begun")
        await center.until_log(stays, b"begun")
        await center.until_log(once, b"begun")
        await center.down()
        lonely = (*mark, b"SKEP_INSTANCE=0")
        await until(lambda: not marked(lonely), seconds=60)
        assert marked((*mark, b"SKEP_INSTANCE=1"))
        await center.up()
        await center.until(lambda: bytes(center.logs[key]).count(b"begun") == 2, seconds=60)
        report = await center.until_state(key, RUNNING)
        assert bytes(center.logs[stays]).count(b"begun") == 1
        await center.until_state(once, FAILED)
        reasons = [report.reason for report in center.history if report.no == once[1]]
        assert any("no center answered" in reason for reason in reasons)
    assert report.starts == 2
    assert b"asked to end" in center.logs[key]


async def test_kinds_are_offered_as_the_operator_says(center: AppsDouble, tmp_path: Path) -> None:
    async with hosting_agent(center, tmp_path / "a"):
        assert "app" in center.registrations[-1].kinds
        assert "image" not in center.registrations[-1].kinds
    for settings in (AgentSettings(kinds_off=("app",)), AgentSettings(code="never")):
        assert look(settings, "a", isolation_of(settings)).kinds == ()


async def test_unused_packages_go_first(center: AppsDouble, tmp_path: Path) -> None:
    """Within their bound the ones used last stay; one in use stays whatever its size."""
    specs = [
        AppSpec(package=center.give({"data": os.urandom(500_000)}), package_kind="zip")
        for _ in range(3)
    ]
    async with CenterClient([center.url], center.token, SystemClock(), Random(1)) as client:
        packages = Packages(tmp_path, 1_100_000, client, Installer(detect()))
        packages.open()
        first, second, third = specs
        used = await packages.take(first)
        for spec in (second, third):
            await packages.take(spec)
            packages.give_back(spec)
        kept = os.listdir(tmp_path)  # noqa: PTH208 - names are enough
        assert set(kept) == {first.package, third.package}
        assert (used.folder / "data").stat().st_size == 500_000
        # What a killed agent left unfinished goes; the rest is not fetched again.
        (tmp_path / third.package / "ready").unlink()
        center.packages.clear()
        again = Packages(tmp_path, 1_100_000, client, Installer(detect()))
        again.open()
        assert (await again.take(first)).folder == used.folder
        with pytest.raises(CannotRun, match="refused the package"):
            await again.take(third)
