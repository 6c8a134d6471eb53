"""The small parts of an agent: its memory on disk, its vitals, its downloaders, its bell."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import msgspec
import pytest

from skep import errors
from skep.agent import agent_folder as workspace_module
from skep.agent.agent_folder import AgentFolder, agent_id
from skep.agent.machine_figures import MachineFigures, describe
from skep.agent.work.run_downloaders import RESTING, RunDownloaders
from skep.agent.work.run_session_files import RunSessionFiles
from skep.downloaders.ports import Downloader, Fetched
from skep.downloaders.session_state import SessionState
from skep.model.proxies import ExitRules
from skep.model.request import Work
from skep.model.run import RunSettings
from skep.runtime.file_encryption import SealBroken, is_sealed, seal, unseal
from skep.runtime.signals import WakeUp
from skep.settings import AgentSettings
from skep.testing.clock import ManualClock
from skep.testing.doubles.toy_agent import TOY_RUN, ToyKind
from skep.wire.problem import PROBLEM, Problem, error_from


def reopened(folder: Path) -> AgentFolder:
    workspace = AgentFolder(folder)
    workspace.open()
    return workspace


def test_the_id_is_made_once(tmp_path: Path) -> None:
    clock = ManualClock()
    first = agent_id(tmp_path / "new", clock, Random(1))
    assert first.startswith("agent-")
    assert agent_id(tmp_path / "new", clock, Random(2)) == first


def test_an_empty_id_file_is_filled_again(tmp_path: Path) -> None:
    """Fault 18: a file torn by a power cut does not stop the agent."""
    (tmp_path / "agent-id").write_bytes(b"")
    made = agent_id(tmp_path, ManualClock(), Random(1))
    assert (tmp_path / "agent-id").read_text().strip() == made


def test_allocations_come_back_and_released_ones_do_not(tmp_path: Path) -> None:
    """A4, fault 18."""
    workspace = reopened(tmp_path)
    workspace.allocate("a", RunSettings(retries=3))
    workspace.allocate("A", RunSettings(retries=4))
    workspace.release("a")
    assert workspace.settings_of("A") == RunSettings(retries=4)
    again = reopened(tmp_path)
    assert again.names() == ["A"]
    assert again.settings_of("A") is None, "they come with the next lease"


SECRET = "TOPSECRET"


def test_no_setting_of_a_run_is_on_the_disk(tmp_path: Path) -> None:
    """E7: proxy passwords and headers stay in memory; the file holds the run's name."""
    workspace = reopened(tmp_path)
    rules = ExitRules(proxies=(f"http://user:{SECRET}@127.0.0.1:3128",))
    workspace.allocate("r", RunSettings(exits=rules, headers={"Authorization": SECRET}))
    (path,) = (tmp_path / "runs").iterdir()
    assert SECRET.encode() not in path.read_bytes()
    assert path.stat().st_mode & 0o077 == 0
    workspace.hide("r")
    assert not path.exists()
    assert workspace.remembers("r")
    workspace.allocate("r", RunSettings())
    assert path.exists(), "a run that goes on is remembered again"


def test_a_file_of_an_earlier_version_loses_its_settings(tmp_path: Path) -> None:
    """E7: what an earlier version wrote in clear is written anew at the start."""
    (tmp_path / "runs").mkdir()
    path = tmp_path / "runs" / f"{b'r'.hex()}.run"
    old = {"run": "r", "settings": RunSettings(headers={"Authorization": SECRET})}
    path.write_bytes(msgspec.msgpack.encode(old))
    assert reopened(tmp_path).names() == ["r"]
    assert SECRET.encode() not in path.read_bytes()
    assert reopened(tmp_path).names() == ["r"]


def test_cookies_are_sealed_with_a_key_that_is_not_on_the_disk(tmp_path: Path) -> None:
    """E7: without the key nothing is written, with another one nothing is read; a file in
    clear, of an earlier version, does not stay."""
    (tmp_path / "runs").mkdir()
    path = tmp_path / "runs" / f"{b'r'.hex()}.jar"
    mine = SessionState([f"127.0.0.1\tFALSE\t/\tFALSE\t0\tid\t{SECRET}"])
    path.write_bytes(msgspec.msgpack.encode(mine))
    session_files = RunSessionFiles(tmp_path, lambda _: True)
    session_files.open()
    session_files.save()
    assert not path.exists()
    session_files.unlock(b"k" * 32)
    session_files.save()
    assert SECRET.encode() not in path.read_bytes()
    for key, found in ((b"k" * 32, mine), (b"x" * 32, None)):
        again = RunSessionFiles(tmp_path, lambda _: True)
        again.open()
        assert again.of("r") is None
        again.unlock(key)
        assert again.of("r") == found
    assert not path.exists(), "what cannot be read is of no use"


def test_a_seal_shows_every_change() -> None:
    """E7: changed, cut or foreign bytes are refused; two seals of one text differ."""
    key, data = b"k" * 32, bytes(range(256)) * 40
    sealed = seal(key, data)
    assert unseal(key, sealed) == data
    assert unseal(key, seal(key, b"")) == b""
    assert seal(key, data) != sealed
    assert is_sealed(sealed)
    for wrong in (b"", sealed[:40], sealed[:-1], sealed + b"x", b"\0" * 100):
        with pytest.raises(SealBroken):
            unseal(key, wrong)
    for place in range(0, len(sealed), 997):
        torn = bytearray(sealed)
        torn[place] ^= 1
        with pytest.raises(SealBroken):
            unseal(key, bytes(torn))


@pytest.mark.parametrize("left", [b"", b"\x82", b"\xff" * 40])
def test_a_torn_allocation_is_forgotten_and_the_others_kept(tmp_path: Path, left: bytes) -> None:
    """Fault 18: torn files are tolerated."""
    workspace = reopened(tmp_path)
    workspace.allocate("torn", RunSettings())
    (path,) = (tmp_path / "runs").iterdir()
    workspace.allocate("whole", RunSettings())
    path.write_bytes(left)
    assert set(reopened(tmp_path).names()) == {"whole"}
    assert not path.exists()


def test_the_memory_of_runs_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspace_module, "RUNS_KEPT", 2)
    workspace = reopened(tmp_path)
    for run in ("a", "b", "a2", "c"):
        workspace.allocate(run, RunSettings())
    assert workspace.names() == ["a2", "c"]
    assert len(list((tmp_path / "runs").iterdir())) == 2


def test_vitals_are_differences_and_sums_of_the_machine(tmp_path: Path) -> None:
    (tmp_path / "stat").write_text("cpu  100 0 100 800 0 0 0 0 0 0\ncpu0 1 1 1 1\n")
    (tmp_path / "meminfo").write_text("MemTotal: 2000 kB\nMemAvailable:  1000 kB\n")
    (tmp_path / "12").mkdir()
    gauge = MachineFigures(tmp_path)
    (tmp_path / "stat").write_text("cpu  175 0 100 825 0 0 0 0 0 0\n")
    vitals = gauge.read(active=3, rate=1.26, outbox=2, dropped=1)
    assert (vitals.cpu, vitals.free_memory, vitals.processes) == (0.75, 1_024_000, 1)
    assert (vitals.active, vitals.rate, vitals.outbox, vitals.dropped) == (3, 1.3, 2, 1)


def test_a_machine_without_proc_has_no_figures(tmp_path: Path) -> None:
    vitals = MachineFigures(tmp_path / "none").read(active=0, rate=0, outbox=0, dropped=0)
    assert (vitals.cpu, vitals.free_memory, vitals.processes) == (0.0, 0, 0)


def test_an_agent_describes_itself() -> None:
    registration = describe("agent-1", AgentSettings(name="bee", group="home"), ("http",))
    assert (registration.id, registration.name, registration.group) == ("agent-1", "bee", "home")
    assert registration.cpus > 0
    assert registration.memory > 0


async def test_one_downloader_per_run_and_a_new_one_for_new_settings() -> None:
    """A3."""
    toy = ToyKind()
    clock = ManualClock()
    downloaders = RunDownloaders({"toy": toy}, clock.monotonic)
    first = downloaders.of("a", TOY_RUN)
    assert downloaders.of("a", TOY_RUN) is first
    assert downloaders.of("b", TOY_RUN) is not first
    newer = RunSettings(downloader="toy", retries=1)
    assert downloaders.of("a", newer) is not first
    assert await downloaders.close_idle(10) == 0
    assert toy.closed == 1  # the one that was replaced
    clock.advance(10)
    assert await downloaders.close_idle(10) == 2
    assert (len(downloaders), toy.closed) == (0, 3)


async def test_many_short_runs_do_not_leave_a_thread_each() -> None:
    """Fault 46: a limited number of idle downloaders is kept, those that were used last."""
    toy, clock = ToyKind(), ManualClock()
    downloaders = RunDownloaders({"toy": toy}, clock.monotonic)
    for number in range(RESTING + 36):
        clock.advance(0.01)
        downloaders.of(f"run-{number}", TOY_RUN)
    assert await downloaders.close_idle(60) == 36
    assert len(downloaders) == RESTING
    kept = downloaders.of("run-36", TOY_RUN)
    assert await downloaders.close_idle(60) == 0
    assert downloaders.of("run-36", TOY_RUN) is kept


class BrokenKind:
    name = "broken"
    schemes: tuple[str, ...] = ()

    def open(self, run: str, settings: RunSettings) -> Downloader:
        raise ValueError(f"no such proxy: {run}, {settings.downloader}")


async def test_a_downloader_that_does_not_open_fails_its_requests_with_the_cause() -> None:
    """D6."""
    downloaders = RunDownloaders({"broken": BrokenKind()}, ManualClock().monotonic)
    came: list[Fetched] = []
    settings = RunSettings(downloader="broken")
    downloaders.of("a", settings).start(Work(1, "x://"), came.append)
    assert came[0].outcome.failure == "code"
    assert "no such proxy" in came[0].outcome.detail


async def ring_after(clock: ManualClock, signal: WakeUp, seconds: float) -> None:
    await clock.sleep(seconds)
    signal.notify()


async def test_a_bell_wakes_by_ring_or_by_time() -> None:
    clock = ManualClock()
    signal = WakeUp(clock)
    signal.notify()
    assert await signal.wait(5)
    late = asyncio.ensure_future(signal.wait(5))
    await clock.pass_time(5)
    assert not await late
    rung = asyncio.ensure_future(signal.wait(5))
    ringer = asyncio.ensure_future(ring_after(clock, signal, 2))
    await clock.pass_time(2)
    assert await rung
    await ringer
    await clock.pass_time(5)
    assert clock.sleepers == 0


def tree(kind: type[errors.SkepError]) -> list[type[errors.SkepError]]:
    return [kind, *(one for below in kind.__subclasses__() for one in tree(below))]


@pytest.mark.parametrize("kind", tree(errors.SkepError)[1:], ids=lambda kind: kind.code)
def test_every_error_of_the_tree_comes_back_as_itself(kind: type[errors.SkepError]) -> None:
    problem = Problem(kind.title, kind.status, "why", kind.code, kind.retryable)
    error = error_from(kind.status, f"{PROBLEM}; charset=utf-8", msgspec.json.encode(problem))
    assert type(error) is kind
    assert error.detail == "why"


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (502, b"<html>Bad Gateway", errors.Unavailable),
        (500, b'{"code":"internal"}', errors.Unavailable),
        (401, b"", errors.Unauthorized),
        (413, b"too big", errors.TooLarge),
        (302, b"", errors.SkepError),
        (404, b'{"code": 7}', errors.NotFound),
    ],
)
def test_answers_of_proxies_and_bugs_are_judged_by_their_status(
    status: int, body: bytes, kind: type[errors.SkepError]
) -> None:
    assert type(error_from(status, PROBLEM, body)) is kind
