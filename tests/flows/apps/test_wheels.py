"""Wheels of applications and what they need: fetched as wheels, installed without a network."""

from __future__ import annotations

import asyncio
import subprocess
import zipfile
from itertools import pairwise
from pathlib import Path

import pytest

from skep.agent.apps.runner_contract import CannotRun
from skep.agent.apps.wheel_install import Installer
from skep.downloaders.code.isolation import Isolation, detect
from skep.errors import InvalidInput
from skep.jobs.apps.package_file import pack_place


def make_wheel(folder: Path, name: str, version: str = "1", *needs: str) -> Path:
    """A wheel with one module and a script, both called after it."""
    folder.mkdir(exist_ok=True)
    about = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    about += "".join(f"Requires-Dist: {need}\n" for need in needs)
    info = f"{name}-{version}.dist-info"
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}.py", f"def main():\n    print('{name} {version}')\n")
        archive.writestr(f"{info}/METADATA", about)
        tags = "Wheel-Version: 1.0\nGenerator: hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        archive.writestr(f"{info}/WHEEL", tags)
        entry = f"[console_scripts]\n{name} = {name}:main\n"
        archive.writestr(f"{info}/entry_points.txt", entry)
        archive.writestr(f"{info}/RECORD", "")
    return path


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder where pip of this test finds wheels, and nowhere else."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


@pytest.mark.slow  # an environment is made
async def test_what_a_wheel_needs_is_installed_with_it(index: Path, tmp_path: Path) -> None:
    """S2: dependencies of dependencies, extras, markers and versions that two of them bound."""
    main = make_wheel(
        tmp_path / "own", "app", "1", "left", "right[more]>=1", "never; python_version < '3'"
    )
    make_wheel(index, "left", "1", "shared")
    make_wheel(index, "right", "1", "shared<2", "extra_one; extra == 'more'", "x; extra == 'y'")
    make_wheel(index, "extra_one", "1")
    for version in ("1", "2"):
        make_wheel(index, "shared", version)
    environment = tmp_path / "place" / "environment"
    environment.parent.mkdir()
    await Installer(detect()).install(main, environment)
    python = str(environment / "bin" / "python")
    code = "import app, left, right, extra_one, shared; shared.main()"
    done = await asyncio.to_thread(
        subprocess.run, [python, "-I", "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout == "shared 1\n"
    assert (environment / "bin" / "app").exists()
    assert not (tmp_path / "place" / "wheels").exists()


@pytest.mark.parametrize("boxed", [True, pytest.param(False, marks=pytest.mark.slow)])
async def test_nothing_is_fetched_from_a_url_that_a_wheel_names(
    boxed: bool, index: Path, tmp_path: Path
) -> None:
    """S2: not even by one that the application needs; nothing is built."""
    asked: list[bytes] = []

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.read(1000))
        writer.close()

    server = await asyncio.start_server(take, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/x-1.0.tar.gz"
    make_wheel(index, "middle", "1", f"x @ {url}")
    isolation = detect() if boxed else Isolation("", "of this test", own_user=False)
    main = make_wheel(tmp_path / "own", "app", "1", "middle")
    place = tmp_path / "place"
    place.mkdir()
    with pytest.raises(CannotRun, match="requires a URL: x"):
        await Installer(isolation).install(main, place / "environment")
    assert asked == []
    server.close()


@pytest.mark.slow  # an environment is made
@pytest.mark.needs("bwrap")
async def test_wheels_are_read_and_installed_in_a_sandbox_without_a_network(
    index: Path, tmp_path: Path
) -> None:
    """S2: pip outside of it read the agent's token. It installs what is there, and fetches and
    resolves nothing by itself."""
    found, calls = detect(), tmp_path / "calls"
    recorder = tmp_path / "bwrap"
    recorder.write_text(f'#!/bin/sh\nprintf "%s\\n" "$*" >> {calls}\nexec {found.bwrap} "$@"\n')
    recorder.chmod(0o755)
    place = tmp_path / "place"
    place.mkdir()
    main = make_wheel(tmp_path / "own", "app", "1")
    isolation = Isolation(str(recorder), "", own_user=found.own_user)
    await Installer(isolation).install(main, place / "environment")
    reading, installing = calls.read_text().splitlines()
    assert "needs.py" in reading
    assert " -m pip install " in installing
    for call in (reading, installing):
        words = call.split()
        assert {"--unshare-net", "--unshare-pid"} <= set(words)
        # Nothing of the agent's folder but this environment and its wheels.
        bound = {after for word, after in pairwise(words) if "bind" in word}
        inside = {path for path in bound if Path(path).is_relative_to(tmp_path)}
        assert inside == {str(place / "environment"), str(place / "wheels")}
    assert {"--no-index", "--no-deps"} <= set(installing.split())


@pytest.mark.slow  # an environment is made
async def test_a_source_archive_is_not_built(index: Path, tmp_path: Path) -> None:
    """S2: only wheels are taken from an index."""
    (index / "built-1.0.tar.gz").write_bytes(b"not a wheel")
    main = make_wheel(tmp_path / "own", "app", "1", "built")
    (tmp_path / "place").mkdir()
    with pytest.raises(CannotRun, match="built"):
        await Installer(detect()).install(main, tmp_path / "place" / "environment")


@pytest.mark.parametrize(
    "need", ["x @ http://h/x.tar.gz", "x@ git+https://h/x", "x[a] @ file:///x ; python_version>'3'"]
)
def test_a_wheel_that_requires_a_url_is_not_packed(need: str, tmp_path: Path) -> None:
    """S2: refused at the center, before an agent has it."""
    main = make_wheel(tmp_path / "own", "app", "1", "fine>=1", need)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with pytest.raises(InvalidInput, match=r"requires 'x.*' from a URL"):
        pack_place(main, 2**20, scratch)
