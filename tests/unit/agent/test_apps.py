"""Parts of applications on agents: the spool of a log, records, unpacking, finding programs."""

from __future__ import annotations

import io
import stat
import sys
import zipfile
from pathlib import Path

import pytest

from skep.agent.apps.capabilities import look
from skep.agent.apps.instance_record import InstanceRecord, InstanceRecords
from skep.agent.apps.log_spool import PIECE, Spool
from skep.agent.apps.process import environment, find
from skep.agent.apps.runner_contract import CannotRun, ProcessExit, Start
from skep.agent.apps.wheel_install import wheel_name
from skep.agent.apps.zip_unpacking import unpack
from skep.downloaders.code.isolation import Isolation
from skep.model.jobs.app import AppSpec, InstanceState
from skep.settings import AgentSettings
from skep.testing.doubles.apps_center import zipped


def spool_in(folder: Path, bound: int = 4 * PIECE) -> Spool:
    spool = Spool(folder, bound)
    spool.open()
    return spool


def test_a_spool_goes_on_where_it_stopped(tmp_path: Path) -> None:
    spool = spool_in(tmp_path)
    spool.write(b"abc")
    assert spool.read(0) == (0, b"abc")
    assert spool.read(2) == (2, b"c")
    spool.let_go(3)
    assert (spool.first, spool.end) == (3, 3)
    again = spool_in(tmp_path)
    again.write(b"def")
    assert again.read(0) == (3, b"def")


def test_a_full_spool_drops_its_oldest(tmp_path: Path) -> None:
    """The disk holds the newest bytes up to the bound, and offsets go on counting."""
    spool = spool_in(tmp_path)
    for number in range(10):
        spool.write(bytes([number]) * PIECE)
    assert (spool.first, spool.end) == (6 * PIECE, 10 * PIECE)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) == 4 * PIECE
    assert spool.read(0) == (6 * PIECE, b"\x06" * PIECE)


def test_a_center_that_knows_more_than_the_spool_is_followed(tmp_path: Path) -> None:
    """A power cut can take bytes that had been sent: their offsets are not used again."""
    spool = spool_in(tmp_path)
    spool.write(b"abc")
    spool.let_go(10)
    spool.write(b"new")
    assert spool.read(3) == (10, b"new")


def test_records_survive_and_torn_ones_are_forgotten(tmp_path: Path) -> None:
    records = InstanceRecords(tmp_path / "instances")
    assert records.open() == []
    done = InstanceRecord("Run", 1, 2, state=InstanceState.DONE, starts=3)
    records.keep(done)
    torn = InstanceRecord("run", 1, 2)
    records.keep(torn)
    (records.folder(torn) / "record").write_bytes(b"\x81")
    again = InstanceRecords(tmp_path / "instances")
    assert again.open() == [done]
    assert len(list((tmp_path / "instances").iterdir())) == 1
    again.forget(done)
    assert again.open() == []


def test_a_zip_keeps_its_files_and_what_can_run(tmp_path: Path) -> None:
    file = tmp_path / "a.zip"
    file.write_bytes(zipped({"run.sh": "#!/bin/sh\n", "sub/data.txt": "x"}))
    assert unpack(file, tmp_path / "out", 1000) == 11
    assert (tmp_path / "out/run.sh").stat().st_mode & stat.S_IXOTH
    assert not (tmp_path / "out/sub/data.txt").stat().st_mode & stat.S_IXUSR


@pytest.mark.parametrize("name", ["../out.txt", "/abs.txt", "a/../../out.txt", "C:x", "a\\..\\b"])
def test_a_zip_that_leads_out_is_refused(tmp_path: Path, name: str) -> None:
    """Fault 51, zip slip: nothing is written outside of the package's folder."""
    file = tmp_path / "a.zip"
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        entry = zipfile.ZipInfo("x")
        entry.filename = name
        archive.writestr(entry, "evil")
    file.write_bytes(buffer.getvalue())
    with pytest.raises(CannotRun, match="leads out of it"):
        unpack(file, tmp_path / "out", 1000)
    assert {path.name for path in tmp_path.rglob("*")} == {"a.zip", "out"}


@pytest.mark.parametrize(
    ("links", "refused"),
    [
        ({"a": "sub/x"}, ""),
        ({"a": "../../etc/passwd"}, "link that leads out"),
        ({"a": "/etc/passwd"}, "link that leads out"),
        # Each of the two stays inside by its letters; together they do not.
        ({"sub/p": "../", "q": "sub/p/.."}, "link that leads out"),
        ({"a": "sub", "a/b": "x"}, "link below a link"),
    ],
)
def test_links_in_a_zip_stay_inside(tmp_path: Path, links: dict[str, str], refused: str) -> None:
    file = tmp_path / "a.zip"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("sub/x", "x")
        for name, target in links.items():
            entry = zipfile.ZipInfo(name)
            entry.external_attr = (stat.S_IFLNK | 0o777) << 16
            archive.writestr(entry, target)
    if refused:
        with pytest.raises(CannotRun, match=refused):
            unpack(file, tmp_path / "out", 1000)
    else:
        assert unpack(file, tmp_path / "out", 1000) == 1
        assert (tmp_path / "out/a").read_text() == "x"


@pytest.mark.parametrize(
    "names", [("a", "a"), ("a", "a/b"), ("a/", "a"), ("a/b", "a"), ("x" * 5000,)]
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_names_that_no_disk_takes_are_a_reason_and_not_retried(
    tmp_path: Path, names: tuple[str, ...]
) -> None:
    """Fault 51: what is wrong with the package itself is not taken for a full disk."""
    file = tmp_path / "a.zip"
    with zipfile.ZipFile(file, "w") as archive:
        for name in names:
            archive.writestr(name, "" if name.endswith("/") else "x")
    with pytest.raises(CannotRun, match="cannot be written") as refused:
        unpack(file, tmp_path / "out", 1000)
    assert len(str(refused.value)) < 300
    assert str(tmp_path) not in str(refused.value)


def test_a_zip_bomb_is_refused_before_it_fills_the_disk(tmp_path: Path) -> None:
    """Fault 57: by what comes out, not by what the zip says of itself."""
    file = tmp_path / "a.zip"
    data = bytearray(zipped({"zeros": bytes(30 * 2**20)}))
    assert len(data) < 40_000
    central = data.rindex(b"PK\x01\x02")
    data[central + 24 : central + 28] = (10).to_bytes(4, "little")  # it says ten bytes
    for number, content in enumerate((bytes(data), zipped({"zeros": bytes(30 * 2**20)}))):
        file.write_bytes(content)
        target = tmp_path / f"out{number}"
        with pytest.raises(CannotRun, match=r"exceeds 5000000 bytes|not a valid zip"):
            unpack(file, target, 5_000_000)
        assert sum(path.stat().st_size for path in target.rglob("*")) <= 5_000_000


@pytest.mark.parametrize(
    "data", [b"", b"no zip", zipped({"a": "b"})[:40]], ids=["empty", "text", "torn"]
)
def test_an_invalid_zip_is_a_reason(tmp_path: Path, data: bytes) -> None:
    file = tmp_path / "a.zip"
    file.write_bytes(data)
    with pytest.raises(CannotRun, match="not a valid zip"):
        unpack(file, tmp_path / "out", 1000)


def test_programs_are_found_in_the_package_first(tmp_path: Path) -> None:
    package, binaries = tmp_path / "p", tmp_path / "bin"
    package.mkdir()
    binaries.mkdir()
    for place in (package / "sh", binaries / "tool"):
        place.write_text("#!/bin/sh\n")
        place.chmod(0o755)
    paths = (binaries,)
    assert find(AppSpec(("sh",)), package, paths) == str(package / "sh")
    assert find(AppSpec(("./sh",)), package, paths) == str(package / "sh")
    assert find(AppSpec(("tool",)), package, paths) == str(binaries / "tool")
    assert find(AppSpec(("env",)), package, ()) in {"/usr/bin/env", "/bin/env"}
    assert find(AppSpec((sys.executable,)), package, ()) == sys.executable
    for absent in ("../bin/tool", "none-such", "sub/none"):
        with pytest.raises(CannotRun, match="neither in the package"):
            find(AppSpec((absent,)), package, ())
    with pytest.raises(CannotRun, match="no command"):
        find(AppSpec(), package, ())


def test_an_application_cannot_say_who_it_is(tmp_path: Path) -> None:
    """What it is told about itself is what tells its processes apart."""
    spec = AppSpec(("x",), environment={"SKEP_AGENT": "another", "LANG": "de_DE.UTF-8"})
    made = environment(Start(spec, "r", 3, 1, "me", tmp_path), "/tmp")
    assert (made["SKEP_AGENT"], made["SKEP_RUN"], made["SKEP_INSTANCE"]) == ("me", "r", "3")
    assert made["LANG"] == "de_DE.UTF-8"


def test_a_wheel_has_a_plain_name() -> None:
    fine = AppSpec(package_name="app-1.0-py3-none-any.whl")
    assert wheel_name(fine) == "app-1.0-py3-none-any.whl"
    for name in ("../app.whl", "-r.txt", "a b.whl", ""):
        with pytest.raises(CannotRun, match="not a valid wheel name"):
            wheel_name(AppSpec(package_name=name))


def test_endings_have_names() -> None:
    assert [ProcessExit(code).words for code in (0, 3, 137, 143, 255)] == [
        "exit code 0",
        "exit code 3",
        "signal SIGKILL",
        "signal SIGTERM",
        "exit code 255",
    ]


def test_an_agent_that_shall_run_images_and_cannot_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its operator has switched them on, and would look for the reason in its log."""
    monkeypatch.setenv("PATH", str(tmp_path))
    missing = Isolation("", "not checked", own_user=False)
    assert look(AgentSettings(), "a", missing).no_images == "agent.containers is off"
    assert "images" not in caplog.text
    assert "image" not in look(AgentSettings(containers=True), "a", missing).kinds
    assert "does not run application images: neither podman nor docker is installed" in caplog.text
