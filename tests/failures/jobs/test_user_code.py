"""Hostile user code (faults 63, 64, D7): each attack is contained and logged, and the agent
goes on. In a box, and with the kernel's limits alone, as long as the latter can promise it."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from random import Random
from typing import Any

import psutil
import pytest

from skep.archive.frames import read_records, split_response
from skep.downloaders.code.child_start import descendants
from skep.downloaders.code.children import CodeDownloader
from skep.downloaders.ports import Fetched
from skep.downloaders.registry import kinds
from skep.model.failures.failure_class import FailureClass
from skep.model.request import Work
from skep.model.run import RunSettings
from skep.model.user_code import Code, CodeLimits
from skep.runtime.clock import SystemClock
from skep.settings import AgentSettings, EgressSettings
from skep.testing.needs import needs
from skep.testing.polling import until

pytestmark = pytest.mark.fault(63)

SMALL = CodeLimits(memory=256 * 2**20, scratch=8 * 2**20, processes=16)
CEILINGS: dict[str, Any] = {
    "code_memory": 300 * 2**20,
    "code_scratch": 16 * 2**20,
    "code_processes": 64,
}
PEACE = "http://a.example/peace"
ATTACK = "http://a.example/attack"
SECRET = "canary-5f1d"
#: Seconds that no other process on this machine sleeps.
NAP = str(7_000_000 + os.getpid())
WHEN_ASKED = 'case "$1" in *attack) {} ;; esac; printf fine'
Open = Callable[..., CodeDownloader]


def own_children() -> set[int]:
    """Without those of servers that other tests have started: they come and go."""
    servers = {"postgres", "mariadbd", "redis-server", "nginx"}
    found: set[int] = set()
    for pid in descendants(os.getpid()):
        with contextlib.suppress(psutil.NoSuchProcess):
            found |= set() if psutil.Process(pid).name() in servers else {pid}
    return found


@pytest.fixture(params=["boxed", "limits only"])
async def opened(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Open]:
    if request.param == "limits only":
        needs("root")
        monkeypatch.setattr("shutil.which", lambda _name: None)
    else:
        needs("bwrap")
    agent = AgentSettings(code="always", code_workers=1, **CEILINGS)
    offered = kinds(SystemClock(), Random(), EgressSettings(), agent=agent)
    made: list[CodeDownloader] = []

    def open_one(kind: str, source: str, **more: Any) -> CodeDownloader:
        code = Code(source, more.pop("limits", SMALL))
        settings = RunSettings(downloader=kind, code=code, **{"time_limit": 5.0, **more})
        downloader = offered[kind].open("run", settings)
        assert isinstance(downloader, CodeDownloader)
        made.append(downloader)
        return downloader

    before = own_children()
    yield open_one
    for downloader in made:
        await downloader.close()
    assert own_children() <= before, "nothing is left of it"


def attacking(body: str) -> str:
    """A module whose `run` attacks when it is asked to, and answers otherwise."""
    lines = "\n".join(f"        {line}" for line in body.strip().splitlines())
    asked = f"    if uri.endswith('attack'):\n{lines}\n"
    return f"import os, sys\ndef run(uri, meta):\n{asked}    return 'fine'\n"


async def fetch(downloader: CodeDownloader, uri: str, **more: Any) -> Fetched:
    end: asyncio.Future[Fetched] = asyncio.get_running_loop().create_future()
    downloader.start(Work(1, uri, **more), end.set_result)
    async with asyncio.timeout(40):
        return await end


async def survives(downloader: CodeDownloader) -> None:
    fetched = await fetch(downloader, PEACE)
    assert fetched.outcome.failure == "", fetched.outcome.detail
    assert body_of(fetched) == "fine"


def body_of(fetched: Fetched) -> str:
    assert fetched.outcome.failure == "", fetched.outcome.detail
    return split_response(read_records(fetched.frames)[0]).body.decode()


def running(marker: str) -> list[int]:
    """Processes of this machine with the marker in their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if marker.encode() in words:
                found.append(int(entry.name))
    return found


async def test_a_fork_bomb_in_python(opened: Open) -> None:
    downloader = opened("python", attacking("while True:\n    os.fork()"))
    outcome = (await fetch(downloader, ATTACK)).outcome
    assert outcome.failure in {FailureClass.CODE, FailureClass.TIMEOUT}
    assert "temporarily unavailable" in outcome.detail or "no result within" in outcome.detail
    await survives(downloader)


async def test_a_fork_bomb_in_shell(opened: Open) -> None:
    script = """
bomb() { bomb | bomb & bomb; }
case "$1" in *attack) bomb ;; esac
printf fine
"""
    downloader = opened("shell", script, time_limit=3.0)
    attack = asyncio.ensure_future(fetch(downloader, ATTACK))
    most = 0
    while not attack.done():
        most = max(most, len(descendants(os.getpid())))
        await asyncio.sleep(0.05)
    assert attack.result().outcome.failure in {"", FailureClass.CODE, FailureClass.TIMEOUT}
    assert most < 40, "the kernel held it to 16 processes"
    await survives(downloader)


async def test_code_gets_no_more_than_the_ceilings_of_the_agent(opened: Open) -> None:
    """S12: code that asked for 1 TiB of memory and 64 GiB of scratch space got them."""
    source = """
import resource
def run(uri):
    kinds = (resource.RLIMIT_AS, resource.RLIMIT_FSIZE, resource.RLIMIT_NPROC)
    return " ".join(str(resource.getrlimit(kind)[1]) for kind in kinds)
"""
    greedy = CodeLimits(memory=2**40, scratch=2**36, processes=4096)
    told = await fetch(opened("python", source, limits=greedy), PEACE)
    memory, scratch, processes = map(int, body_of(told).split())
    assert memory == CEILINGS["code_memory"]
    assert scratch == CEILINGS["code_scratch"]
    assert processes <= CEILINGS["code_processes"] + 1


async def test_code_has_no_rights_and_gets_none(opened: Open) -> None:
    """S7: no capability, and no setuid program gives one; in a box and without."""
    source = """
def run(uri):
    with open("/proc/self/status") as file:
        told = dict(line.split(":", 1) for line in file if ":" in line)
    return " ".join(told[name].strip() for name in ("NoNewPrivs", "CapEff", "CapPrm"))
"""
    told = await fetch(opened("python", source), PEACE)
    assert body_of(told) == f"1 {'0' * 16} {'0' * 16}"


@pytest.mark.parametrize("opened", ["boxed"], indirect=True)
async def test_memory_that_no_limit_counts_is_refused(opened: Open) -> None:
    """S12: 1.5 GB of anonymous files with a limit of 512 MB; segments of System V likewise."""
    source = """
import ctypes, os
def run(uri):
    libc = ctypes.CDLL(None, use_errno=True)
    said = []
    try:
        file = os.memfd_create("x")
        os.truncate(file, 2**30)
        said.append("a file")
    except OSError as error:
        said.append(error.errno)
    libc.shmget(0, ctypes.c_size_t(2**30), 0o1600)
    said.append(ctypes.get_errno())
    return str(said)
"""
    told = await fetch(opened("python", source), PEACE)
    assert body_of(told) == "[1, 1]"


async def test_a_memory_hog(opened: Open) -> None:
    hog = "held = []\nwhile True:\n    held.append(bytearray(2**24))"
    downloader = opened("python", attacking(hog))
    outcome = (await fetch(downloader, ATTACK)).outcome
    assert (outcome.failure, outcome.detail) == (FailureClass.LIMIT, "MemoryError (line 6, in run)")
    await survives(downloader)


async def test_an_endless_loop(opened: Open) -> None:
    downloader = opened("python", attacking("while True:\n    pass"), time_limit=1.0)
    outcome = (await fetch(downloader, ATTACK)).outcome
    assert (outcome.failure, outcome.detail) == (
        FailureClass.TIMEOUT, "the code had no result within 1 s",
    )  # fmt: skip
    assert 1_000_000 <= outcome.elapsed_us < 10_000_000
    await survives(downloader)


async def test_an_endless_loop_while_the_module_is_loaded(opened: Open) -> None:
    downloader = opened("python", "while True: pass\ndef run(uri): ...\n", time_limit=1.0)
    outcome = (await fetch(downloader, ATTACK)).outcome
    assert (outcome.failure, outcome.detail) == (
        FailureClass.CODE, "the code was not loaded within 1 s",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "source", "failure"),
    [
        ("python", attacking("return bytes(2**30)"), "limit"),
        ("python", attacking("return bytes(2**25)"), "limit"),
        ("python", attacking("for _ in range(2**14):\n    print('x' * 2**16)"), "code"),
        ("shell", WHEN_ASKED.format("head -c 1073741824 /dev/zero"), "limit"),
        ("shell", WHEN_ASKED.format("yes >&2; exit 9"), "code"),
        ("shell", WHEN_ASKED.format("yes >big; exit 9"), "code"),
    ],
)  # fmt: skip
async def test_a_gigabyte_of_output(opened: Open, kind: str, source: str, failure: str) -> None:
    """Whether it is returned, printed, or written to a file, the agent's memory is its own."""
    downloader = opened(kind, source, time_limit=20.0)
    await survives(downloader)
    before = resident()
    outcome = (await fetch(downloader, ATTACK)).outcome
    assert outcome.failure == failure, outcome.detail
    assert resident() - before < 64 * 2**20
    await survives(downloader)


def resident() -> int:
    fields = Path("/proc/self/statm").read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")


async def test_orphaned_grandchildren_of_a_script(opened: Open) -> None:
    script = f"""
case "$1" in *attack)
    setsid sleep {NAP} &
    (sleep {NAP} & sleep {NAP} &) &
    setsid sh -c 'setsid sleep {NAP} &' ;;
esac
printf fine
"""
    downloader = opened("shell", script)
    assert body_of(await fetch(downloader, ATTACK)) == "fine", "it did not wait for them"
    assert running(NAP) == [], "they ended with their request"


async def test_orphaned_grandchildren_of_a_module(opened: Open) -> None:
    attack = f"""
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execvp("sleep", ["sleep", "{NAP}"])
        os._exit(0)
"""
    downloader = opened("python", attacking(attack))
    assert body_of(await fetch(downloader, ATTACK)) == "fine"
    await survives(downloader)
    await until(lambda: len(running(NAP)) >= 3, seconds=5)
    await downloader.close()
    assert running(NAP) == []


async def test_writing_outside_its_folder(opened: Open, tmp_path: Path) -> None:
    attack = """
written = []
for place in meta["places"]:
    try:
        with open(place + "/intruder", "w"):
            written.append(place)
    except OSError:
        pass
with open("inside", "w") as file:
    file.write("x")
return written
"""
    downloader = opened("python", attacking(attack))
    places = ["/", "/etc", "/usr", "/usr/bin", "/var", "/proc", "/run", str(tmp_path), "/dev"]
    places += [str(Path.cwd()), str(Path(os.__file__).parent)]
    assert body_of(await fetch(downloader, ATTACK, meta={"places": places})) == "[]"
    assert not any(os.path.exists(f"{place}/intruder") for place in places)  # noqa: ASYNC240, PTH110 - quick
    await survives(downloader)


async def test_reading_secrets(
    opened: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault 68: token files, the environment, and the agent's own /proc."""
    monkeypatch.setenv("SKEP_TEST_TOKEN", SECRET)
    token = tmp_path / "admin.token"
    token.touch(mode=0o600)
    token.write_text(SECRET)
    attack = """
found = [repr(dict(os.environ))]
pids = [pid for pid in os.listdir("/proc") if pid.isdigit()]
parts = ("environ", "mem", "fd/3", "fd/5")
for path in [meta["token"], *(f"/proc/{pid}/{part}" for pid in pids for part in parts)]:
    try:
        with open(path, "rb") as file:
            found.append(repr(file.read(65536)))
    except (OSError, ValueError):
        pass
return found
"""
    downloader = opened("python", attacking(attack))
    meta = {"token": str(token)}
    found = body_of(await fetch(downloader, ATTACK, meta=meta))
    assert "PATH" in found
    assert SECRET not in found
    assert "SKEP" not in found
    script = 'cat "$(printf %s "$SKEP_META" | cut -d\\" -f4)" /proc/*/environ; env; true'
    said = body_of(await fetch(opened("shell", script), ATTACK, meta=meta))
    assert "SKEP_URI=" in said
    assert SECRET not in said


@pytest.mark.parametrize(
    "payload",
    [
        "$(touch pwned)", "`touch pwned`", ";touch pwned", "&&touch pwned", "|touch pwned",
        "'; touch pwned; '", '"; touch pwned; "', "\ntouch pwned\n", ">pwned", "${IFS}", "-n",
        "*", "\\", "$((1/0))", "%n%s", "\x1b]0;x\x07",
    ],
)  # fmt: skip
async def test_shell_metacharacters_in_a_uri(opened: Open, payload: str) -> None:
    """Fault 64: a URI is data, whatever it looks like."""
    downloader = opened("shell", 'printf "%s\\n%s\\n" "$1" "$SKEP_URI"; ls -A')
    uri = f"http://a.example/{payload}"
    assert body_of(await fetch(downloader, uri)) == f"{uri}\n{uri}\n"


async def test_killing_all_processes(opened: Open) -> None:
    attack = """
import signal
for pid in (1, os.getppid(), -1):
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError:
        pass
"""
    downloader = opened("python", attacking(attack))
    await fetch(downloader, ATTACK)
    await survives(downloader)


@pytest.mark.parametrize(
    "said",
    [
        "b'\\xff' * 100_000",
        "(2**31).to_bytes(4, 'big') + b'x' * 1000",
        "b'\\x00\\x00\\x00\\x01\\xc1'",
        "message('end', 999, '', '', '', 1, 200, [], b'forged', False)",
        "message('hello', True)",
        "message('bad', 'x', 'y')",
        "message('end', 1, 'no class', '', '', 1, 200, [], b'', False)",
        "message('end', 1, '', '', '', -1, 200, [], b'', False)",
    ],
)
async def test_code_that_speaks_for_its_process(opened: Open, said: str) -> None:
    """A hostile child cannot confuse its parent: sizes, shapes and ids are checked."""
    attack = f"""
import socket, time, msgspec
def message(*parts):
    data = msgspec.msgpack.encode(parts)
    return len(data).to_bytes(4, "big") + data
for fd in range(3, 64):
    try:
        socket.socket(fileno=os.dup(fd)).sendall({said})
    except OSError:
        pass
time.sleep(3)
"""
    downloader = opened("python", attacking(attack))
    outcome = (await fetch(downloader, ATTACK)).outcome
    assert outcome.failure == FailureClass.CODE
    assert "the code sent an invalid message to the agent" in outcome.detail
    await survives(downloader)
