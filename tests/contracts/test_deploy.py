"""What deploy/ says is what the program understands: commands, settings, files, hardening."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import click
import pytest
import redis
import yaml

from skep import settings
from skep.center.app import api_table
from skep.cli.main import skep
from skep.testing.needs import needs
from skep.testing.polling import until_sync

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
UNITS = sorted(DEPLOY.glob("*.service"))
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
OURS = {name: one for name, one in COMPOSE["services"].items() if one["image"] == "skep"}
#: Variables that commands read beside the settings.
MORE = {"SKEP_DATA", "SKEP_CENTER", "SKEP_TOKEN_FILE", "SKEP_JOIN_TOKEN"}
#: Of ten; systemd calls everything below 4 OK.
EXPOSURE = 3.0


def understood(words: list[str]) -> click.Context:
    """The command line as the program reads it; raises click.UsageError. Nothing is run."""
    found = skep.get_command(click.Context(skep), words[0])
    assert found is not None, f"skep {words[0]} is not a command"
    return found.make_context(words[0], words[1:])


def known_variables() -> set[str]:
    names = {f"SKEP_{room}_{field}".upper() for room, field, *_ in settings.documented()}
    return names | {f"{name}_FILE" for name in names} | MORE


def directives(unit: Path) -> dict[str, str]:
    lines = (line.partition("=") for line in unit.read_text().splitlines() if line[:1] != "#")
    return {name: value for name, found, value in lines if found}


@pytest.mark.parametrize("name", OURS)
def test_the_command_of_a_service_is_understood(name: str) -> None:
    assert understood([str(word) for word in OURS[name]["command"]]).params["data"] is None


@pytest.mark.parametrize("name", OURS)
def test_the_settings_of_a_service_exist(name: str) -> None:
    assert set(OURS[name].get("environment", {})) <= known_variables()


def test_the_profiles_are_what_they_say() -> None:
    """One embedded center; `scale` is a database, Redis, two centers, two agents, and not the
    embedded one: a service without a profile would start with every other."""
    services = COMPOSE["services"]
    embedded = {name for name, one in services.items() if one.get("profiles") == ["single"]}
    scaled = {name for name, one in services.items() if one.get("profiles") == ["scale"]}
    assert embedded == {"skep"}
    assert scaled == {"postgres", "redis", "center-1", "center-2", "agent-1", "agent-2"}
    assert embedded | scaled == set(services)


def test_what_services_name_is_there() -> None:
    """Volumes, secrets, neighbours and the addresses that agents dial."""
    services = COMPOSE["services"]
    for one in services.values():
        volumes = {volume.split(":")[0] for volume in one.get("volumes", [])}
        assert volumes <= set(COMPOSE["volumes"])
        secrets = {
            each if isinstance(each, str) else each["source"] for each in one.get("secrets", [])
        }
        assert secrets <= set(COMPOSE["secrets"])
        assert set(one.get("depends_on", {})) <= set(services)
        assert all(port.startswith("127.0.0.1:") for port in one.get("ports", []))
    dialled = understood(list(OURS["agent-1"]["command"])).params["center"]
    assert re.findall(r"//([\w-]+):8420", dialled) == ["center-1", "center-2"]


def test_agents_see_nothing_of_a_center_but_their_token() -> None:
    """A center's folder holds the admin token: no agent may read it."""
    services = COMPOSE["services"]
    for name in ("agent-1", "agent-2"):
        assert services[name]["volumes"] == [f"{name}:/data"]
        assert services[name]["secrets"] == ["agent_token"]
        read = understood([str(word) for word in services[name]["command"]]).params["token_file"]
        assert read == Path("/run/secrets/agent_token")
    handed = {"source": "agent_token", "target": "/data/agent.token"}
    assert all(handed in services[name]["secrets"] for name in ("center-1", "center-2"))


def test_agents_cannot_reach_the_stores() -> None:
    """S13: one network held all, and Redis took commands from every container."""
    services = COMPOSE["services"]
    for name in ("agent-1", "agent-2"):
        assert services[name]["networks"] == ["agents"]
    for name in ("postgres", "redis"):
        assert services[name]["networks"] == ["stores"]
    for name in ("center-1", "center-2"):
        assert services[name]["networks"] == ["agents", "stores"]
        assert "--bus" not in services[name]["command"]
        assert services[name]["environment"]["SKEP_BUS_URL_FILE"] == "/run/secrets/bus_url"
    assert COMPOSE["networks"] == {"agents": None, "stores": {"internal": True}}


def test_redis_wants_the_password_of_its_secret(tmp_path: Path) -> None:
    """S13: the command of the service, with its secret as a file here, asks for a password."""
    needs("redis-server")
    secret, unix = tmp_path / "redis_conf", tmp_path / "redis.sock"
    secret.write_text("requirepass hidden\n")
    words = [str(word) for word in COMPOSE["services"]["redis"]["command"]]
    assert words[1] == "/run/secrets/redis_conf"
    more = ["--port", "0", "--unixsocket", str(unix)]
    with subprocess.Popen([words[0], str(secret), *words[2:], *more], cwd=tmp_path) as server:
        try:
            until_sync(unix.exists, seconds=10)
            with (
                redis.Redis(unix_socket_path=str(unix)) as stranger,
                pytest.raises(redis.AuthenticationError),
            ):
                stranger.ping()
            with redis.Redis(unix_socket_path=str(unix), password="hidden") as known:
                assert known.ping()
        finally:
            server.terminate()


def test_images_are_pinned_or_can_be() -> None:
    """S13: the build backend has hashes; base images can be named by digest."""
    text = (DEPLOY / "Dockerfile").read_text()
    assert set(re.findall(r"^FROM (\S+)", text, re.MULTILINE)) == {"${BASE}"}
    assert "--no-build-isolation" in text
    assert "-r requirements/build.txt" in text
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    pinned = (ROOT / "requirements" / "build.txt").read_text()
    for name in project["build-system"]["requires"]:
        assert re.search(rf"^{name}==\S+ \\\n +--hash=sha256:", pinned, re.MULTILINE)
    for name in ("postgres", "redis"):
        image = COMPOSE["services"][name]["image"]
        assert image.startswith(f"${{SKEP_{name.upper()}_IMAGE:-{name}:")


def test_nginx_does_not_repeat_calls_that_create() -> None:
    """S13: a POST that a dying center had taken was sent to the next, which made a second token."""
    text = (DEPLOY / "nginx.conf").read_text()
    (repeated,) = re.findall(r"location ~ (\S+) \{[^}]*non_idempotent;", text)
    assert text.count("non_idempotent") == 1
    posts = {row.path for row in api_table() if row.method == "POST"}
    assert {path for path in posts if re.search(repeated, f"/skep{path}")} == {
        "/node/heartbeat",
        "/node/lease",
        "/node/block",
        "/node/giveback",
        "/requestqueue/{identity}",
        "/api/v1/runs/{run}/requests",
    }


def test_health_is_asked_where_callers_come() -> None:
    """PostgreSQL answers on its socket before it is set up: that is not healthy yet."""
    services = COMPOSE["services"]
    assert "127.0.0.1" in services["postgres"]["healthcheck"]["test"]
    assert all("healthcheck" in services[name] for name in ("postgres", "redis"))


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_children_are_ended_by_their_parent(unit: Path) -> None:
    """A SIGTERM to every process at once would fail applications and spiders at each restart."""
    assert directives(unit)["KillMode"] == "mixed"


def test_the_image_is_small_and_not_roots() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    last = text[text.rindex("\nFROM ") :]
    assert last.index("\nUSER skep\n") < last.index("\nENTRYPOINT ")
    assert "/readyz" in last[last.index("\nHEALTHCHECK ") :]
    words = re.search(r"^CMD (\[.*\])$", last, re.MULTILINE)
    assert words is not None
    assert understood(yaml.safe_load(words[1])).params["host"] == "0.0.0.0"
    copied = re.findall(r"^COPY (?!--from)(.*) \S+$", text, re.MULTILINE)
    assert copied
    assert all((ROOT / name).exists() for line in copied for name in line.split())
    sent = (DEPLOY / "Dockerfile.dockerignore").read_text().splitlines()
    assert all(f"!{name}" in sent for line in copied for name in line.split())


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_the_command_of_a_unit_is_understood(unit: Path) -> None:
    words = shlex.split(directives(unit)["ExecStart"])
    folder = understood(words[1:]).params["data"]
    assert (words[0], folder) == (
        "/opt/skep/bin/skep",
        Path("/var/lib") / directives(unit)["StateDirectory"].split()[0],
    )


@pytest.mark.parametrize("name", ["skep", "skep-center"])
def test_the_folder_for_jobs_of_a_unit_is_not_the_whole_machine(name: str) -> None:
    """Without a word it is the working directory, which is `/` for a service."""
    told = directives(DEPLOY / f"{name}.service")
    assert told["WorkingDirectory"] == f"/var/lib/{name}/jobs"
    assert f"{name}/jobs" in told["StateDirectory"].split()


@pytest.fixture
def analyze() -> str:
    needs("systemd-analyze")
    return "systemd-analyze"


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_understands_a_unit_and_finds_little_exposed(
    unit: Path, analyze: str, tmp_path: Path
) -> None:
    mine = tmp_path / unit.name
    mine.write_text(unit.read_text().replace("/opt/skep/bin/skep", sys.executable))
    verify = [analyze, "verify", "--man=no", str(mine)]
    said = subprocess.run(verify, capture_output=True, text=True, check=False)
    about = [line for line in said.stderr.splitlines() if unit.name in line]
    assert about == []
    rate = [analyze, "security", "--offline=true", str(mine)]
    told = subprocess.run(rate, capture_output=True, text=True, check=False)
    found = re.search(r"exposure level for \S+: ([\d.]+)", told.stdout)
    assert found is not None, told.stderr
    assert float(found[1]) <= EXPOSURE
