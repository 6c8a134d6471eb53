"""Spiders of jobs and other user code that try to get out of their boxes."""

from __future__ import annotations

import asyncio
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from skep.downloaders.code import seccomp
from skep.downloaders.code.isolation import box_arguments, detect
from skep.errors import ConfigurationError
from skep.jobs.runs.spider_process import TAIL, Spawner, SpiderCommand, SpiderProcess
from skep.jobs.runs.spider_sandbox import SpiderSandbox, working_sandbox

CANARY = "canary-4711"
ESCAPE = """
import ctypes, os, sys
data, jobs = sys.argv[1:]
libc = ctypes.CDLL(None, use_errno=True)
status = dict(line.split(":", 1) for line in open("/proc/self/status") if ":" in line)
assert int(status["CapEff"], 16) == int(status["CapPrm"], 16) == 0, status["CapEff"]
assert status["NoNewPrivs"].strip() == "1"
assert libc.umount2(data.encode(), 2) == -1, "unmounted"
assert libc.unshare(0x10000000) == -1, "a user namespace"
assert libc.mount(b"none", b"/tmp", b"tmpfs", 0, None) == -1, "mounted"
assert os.listdir(data) == [], "the data folder is there"
for place in (data, jobs, "/etc", "/usr", "/dev", "/", os.path.dirname(sys.executable)):
    try:
        with open(os.path.join(place, "written-by-a-spider"), "w"):
            raise SystemExit(f"{place} can be written")
    except OSError:
        pass
with open("/tmp/own", "w") as file:
    file.write("a spider may write here")
assert not os.path.exists("/run/docker.sock")
assert len([name for name in os.listdir("/proc") if name.isdigit()]) < 5, "other processes"
print("held", os.getuid())
"""


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    data, jobs = tmp_path / "data", tmp_path / "jobs"
    data.mkdir()
    jobs.mkdir()
    (data / "admin.token").write_text(CANARY)
    return data, jobs


def run_in(box: SpiderSandbox, *program: str) -> subprocess.CompletedProcess[str]:
    file = seccomp.filter_file()
    assert file is not None
    try:
        return subprocess.run(
            box.command([sys.executable, *program], file),
            capture_output=True,
            text=True,
            pass_fds=(file,),
            timeout=60,
            check=False,
        )
    finally:
        os.close(file)


@pytest.mark.needs("bwrap")
def test_a_spider_cannot_leave_its_box(folders: tuple[Path, Path]) -> None:
    """S7: no capability, no mount, no namespace, nothing to write but /tmp; also as root."""
    data, jobs = folders
    box = working_sandbox(data, jobs)
    assert box.why_not == ""
    done = run_in(box, "-c", ESCAPE, str(data), str(jobs))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("held ")
    assert (data / "admin.token").read_text() == CANARY
    assert os.listdir(jobs) == []  # noqa: PTH208 - names are enough


@pytest.mark.needs("bwrap", "root")
def test_a_spider_of_root_has_another_user(folders: tuple[Path, Path]) -> None:
    """S7: where that user can read Python and the folder for jobs."""
    data, jobs = folders
    for folder in (data.parent, *data.parent.parents):
        if folder.stat().st_uid == os.getuid() and folder.name:
            folder.chmod(folder.stat().st_mode | 0o055)
        if folder.name.startswith("pytest-of"):
            break
    jobs.chmod(0o755)
    done = run_in(working_sandbox(data, jobs), "-c", ESCAPE, str(data), str(jobs))
    assert done.stderr == ""
    assert int(done.stdout.split()[1]) > 1000


@pytest.mark.needs("bwrap", "root")
def test_a_spider_that_stays_root_has_no_more_rights(folders: tuple[Path, Path]) -> None:
    """S7: where no other user can read the spiders; root without capabilities, and read-only."""
    data, jobs = folders
    jobs.chmod(0o700)
    box = working_sandbox(data, jobs)
    assert (box.why_not, box.own_user) == ("", False)
    done = run_in(box, "-c", ESCAPE, str(data), str(jobs))
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "held 0\n")
    assert (data / "admin.token").read_text() == CANARY


@pytest.mark.needs("bwrap")
def test_user_code_cannot_make_namespaces() -> None:
    """S7: the filter holds in the boxes of downloaders, generators and applications."""
    found, file = detect(), seccomp.filter_file()
    assert file is not None
    code = (
        "import ctypes, threading, subprocess; libc = ctypes.CDLL(None)\n"
        "assert libc.unshare(0x10000000) == -1 and libc.mount(0, 0, 0, 0, 0) == -1\n"
        "thread = threading.Thread(target=print, args=('threads',)); thread.start()\n"
        "thread.join(); subprocess.run(['/bin/echo', 'programs'], check=True)\n"
    )
    box = [found.bwrap, *box_arguments(2**20, root=found.own_user), "--seccomp", str(file)]
    done = subprocess.run(
        [*box, sys.executable, "-I", "-S", "-c", code],
        capture_output=True,
        text=True,
        pass_fds=(file,),
        check=False,
    )
    os.close(file)
    assert (done.returncode, done.stderr) == (0, "")
    assert set(done.stdout.split()) == {"threads", "programs"}


def test_a_filter_for_each_known_machine() -> None:
    for machine in ("x86_64", "aarch64"):
        text = seccomp.program(machine)
        assert text
        assert len(text) % 8 == 0
        assert len(text) // 8 < 256, "jumps have one byte"
        assert len(seccomp.program(machine, counted=True)) == len(text) + 3 * 16, "S12"
    assert seccomp.program("pdp11", counted=True) == seccomp.program("pdp11") == b""
    assert bool(seccomp.program()) == (platform.machine() in {"x86_64", "aarch64"})


async def test_without_a_box_a_center_runs_no_spider(
    folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """S7: unless `jobs.code` allows it; then at least it gets no new privileges."""
    data, jobs = folders
    monkeypatch.setenv("PATH", str(tmp_path))
    (jobs / "probe.py").write_text("print(open('/proc/self/status').read(), flush=True)\n")
    order = SpiderCommand("r", "probe.py", {}, "http://127.0.0.1:9", "t")
    with pytest.raises(ConfigurationError, match=r"bubblewrap is not installed.*jobs\.code"):
        await Spawner(jobs, data, {}).start(order)
    child = await Spawner(jobs, data, {}, "always").start(order)
    while await child.ended_within(60.0) is None:
        pass
    assert "NoNewPrivs:\t1" in (data / "runs" / "r.log").read_text()


async def test_the_end_of_a_log_begins_with_a_whole_line(tmp_path: Path) -> None:
    """S4: a line that is cut in two may be a secret without the name in front of it."""
    log = tmp_path / "r.log"
    process = await asyncio.create_subprocess_exec("true")
    child = SpiderProcess(process, log, boxed=False)
    await process.wait()
    log.write_text("Authorization: C4nary\nlast\n")
    assert child.tail() == "Authorization: C4nary\nlast\n"
    end = "\nlast\n"
    for kept in range(1, 25):
        log.write_text("Authorization: " + CANARY + "x" * (TAIL - kept - len(end)) + end)
        assert child.tail() == "last\n"
