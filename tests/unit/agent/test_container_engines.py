"""Container engines as agents and `skep doctor` find them: real podman where it is installed,
and programs that say what broken ones say (A8)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from skep.agent.apps.engines import EngineState, find_engine, installed, state_of
from skep.embed.checks.container_engines import container_engines, judge
from skep.settings import AgentSettings
from skep.testing.needs import needs

ON = AgentSettings(containers=True)
OFF = AgentSettings()
MAPPED = '{"gidmap":null,"uidmap":[{"container_id":0,"host_id":1000,"size":1}%s]}'
MORE = ',{"container_id":1,"host_id":100000,"size":65536}'


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder in which programs are looked for."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def put(folder: Path, name: str, says: str, code: int = 0) -> None:
    (folder / f"{name}.says").write_text(says)
    program = folder / name
    stream = ">&2" if code else ""
    program.write_text(f'#!/bin/sh\n/bin/cat "{folder}/{name}.says" {stream}\nexit {code}\n')
    program.chmod(0o755)


def told(settings: AgentSettings) -> dict[str, tuple[bool, str, str]]:
    return {one.name: (one.ok, one.detail, one.fix) for one in container_engines(settings)}


def test_nothing_is_installed(programs: Path) -> None:
    """What to install is said either way; it is wrong only where images shall run."""
    assert list(installed(ON)) == []
    assert find_engine(ON, "a") == "neither podman nor docker is installed"
    ok, detail, _ = told(OFF)["images"]
    assert ok
    assert "agent.containers is off; neither podman nor docker is installed: install podman" in (
        detail
    )
    ok, detail, fix = told(ON)["images"]
    assert (ok, detail) == (
        False,
        "agent.containers is on, but neither podman nor docker is installed",
    )
    assert "apt install podman" in fix


def test_one_without_its_daemon(programs: Path) -> None:
    put(programs, "docker", "Cannot connect to the Docker daemon\nIs it running?\n", 1)
    assert find_engine(ON, "a") == (
        "docker does not answer: Cannot connect to the Docker daemon\nIs it running?"
    )
    for settings in (ON, OFF):
        found = told(settings)
        ok, detail, _ = found["docker"]
        assert ok, "it is not used; `images` says whether that is wrong"
        assert "Cannot connect to the Docker daemon Is it running?; to use it, start it" in detail
        assert found["images"][0] is not settings.containers


def test_podman_with_users_and_without(programs: Path) -> None:
    """Without ranges in /etc/subuid podman answers, and images cannot be unpacked."""
    put(programs, "podman", f"true\t4.3.1\t{MAPPED % ''}\n")
    found = told(ON)
    assert found["podman"][0] is False
    assert "one user in a container" in found["podman"][1]
    assert found["podman"][2].startswith("usermod --add-subuids")
    assert told(OFF)["podman"][0] is True
    put(programs, "podman", f"true\t4.3.1\t{MAPPED % MORE}\n")
    ok, detail, _ = told(ON)["podman"]
    assert ok
    assert detail.endswith("without root")
    assert told(ON)["images"][:2] == (True, "run by podman")


def test_rootless_docker_beside_a_broken_podman(programs: Path) -> None:
    put(programs, "podman", "cannot clone: Operation not permitted", 125)
    put(programs, "docker", '["name=seccomp","name=rootless"]\t28.2.2\t{}\n')
    engine = find_engine(ON, "a")
    assert not isinstance(engine, str)
    assert engine.kind == "docker"
    found = told(ON)
    assert [name for name, (ok, _, _) in found.items() if not ok] == []
    assert "Operation not permitted; to use it, make `podman info`" in found["podman"][1]
    assert found["docker"][1].endswith("without root")
    assert found["images"][1] == "run by docker"


@pytest.mark.parametrize("says", ["", "what?", "a\tb\tc\td\n"])
def test_an_answer_that_cannot_be_parsed(programs: Path, says: str) -> None:
    put(programs, "podman", says)
    (engine,) = installed(ON)
    assert "unexpected answer" in state_of(engine).trouble


def test_a_kind_that_is_switched_off_needs_no_engine() -> None:
    settings = AgentSettings(containers=True, kinds_off=("image",))
    podman, images = judge(settings, [EngineState("podman", one_user=True)], "me")
    assert (podman.ok, images.ok) == (True, True)
    assert "agent.kinds_off" in images.detail


def test_the_podman_of_this_machine() -> None:
    """Whatever it is like here, it is told; as root it works or says why."""
    needs("podman")
    engine = next(installed(ON))
    assert engine.kind == "podman"
    state = state_of(engine)
    assert state.works == (engine.call(["info"])[0] == 0), state.trouble
    if state.works:
        assert state.version[0].isdigit()
        assert state.rootless == (os.geteuid() != 0)
