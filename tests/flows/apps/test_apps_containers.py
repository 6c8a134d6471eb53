"""Images on a real agent with real podman (A8)."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from skep.agent.apps.capabilities import look
from skep.agent.apps.container import ContainerEngine, Containers
from skep.agent.apps.registries import registry_of
from skep.agent.apps.runner_contract import CannotRun
from skep.downloaders.code.isolation import isolation_of
from skep.downloaders.egress_policy import EgressPolicy
from skep.model.jobs.app import AppLimits, InstanceState
from skep.settings import AgentSettings
from skep.testing.doubles.apps_center import AppsDouble, apps_double, hosting_agent
from skep.testing.needs import unless_absent
from skep.testing.polling import until
from skep.testing.processes import AgentProcess
from skep.testing.servers.podman import IMAGE, Podman, podman

RUNNING, PAUSED, STOPPED = InstanceState.RUNNING, InstanceState.PAUSED, InstanceState.STOPPED
DONE, FAILED = InstanceState.DONE, InstanceState.FAILED
COUNT = "trap 'echo asked; exit 9' TERM; echo begun; while true; do echo on; sleep 0.05; done"
COUNTING = ("/bin/sh", "-c", COUNT.replace("sleep", "/bin/busybox sleep"))


@pytest.fixture(scope="module")
def pod() -> Iterator[Podman]:
    with unless_absent(), podman() as made:
        yield made


@pytest.fixture
async def center() -> AsyncIterator[AppsDouble]:
    async with apps_double() as double:
        yield double


@pytest.fixture
def settings(pod: Podman, monkeypatch: pytest.MonkeyPatch) -> AgentSettings:
    for name, value in pod.environment.items():
        monkeypatch.setenv(name, value)
    return AgentSettings(containers=True, container_options=pod.options, drain_seconds=1.0)


def test_a_container_engine_is_used_only_where_the_operator_said_so() -> None:
    """A user who may start containers is as good as root: closed unless it was opened."""
    settings = AgentSettings()
    offer = look(settings, "a", isolation_of(settings))
    assert "image" not in offer.kinds
    assert offer.no_images == "agent.containers is off"


REGISTRIES = [
    ("127.0.0.1:{port}/a/b:1", "loopback"),
    ("localhost:{port}/a", "loopback"),
    ("10.0.0.1:{port}/a", "private"),
    ("169.254.169.254/a", "metadata"),
]


@pytest.mark.parametrize(("image", "why"), REGISTRIES)
async def test_an_image_of_an_inner_registry_is_not_asked_for(
    tmp_path: Path, image: str, why: str
) -> None:
    """S6: egress for everything that a job names; the engine is not even started."""
    engine = tmp_path / "podman"
    engine.write_text(f"#!/bin/sh\necho $* >> {tmp_path}/asked\nexit 1\n")
    engine.chmod(0o755)
    containers = Containers(ContainerEngine(str(engine), (), "a"), AgentSettings(), EgressPolicy())
    with pytest.raises(CannotRun, match=why):
        await containers.have(image.format(port=5000))
    assert "pull" not in (tmp_path / "asked").read_text()
    allowed = EgressPolicy(allow=("127.0.0.0/8", "10.0.0.0/8", "169.254.169.254/32"))
    with pytest.raises(CannotRun, match="cannot pull"):
        await Containers(ContainerEngine(str(engine), (), "a"), AgentSettings(), allowed).have(
            image.format(port=5000)
        )
    assert "pull --quiet" in (tmp_path / "asked").read_text()


@pytest.mark.parametrize(
    ("image", "registry"),
    [
        ("busybox", None),
        ("team/app:1", None),
        ("h.example/app", ("h.example", 443)),
        ("h.example:5000/app:1", ("h.example", 5000)),
        ("[::1]:5000/app", ("::1", 5000)),
        ("[::1]/app", ("::1", 443)),
        ("LOCALHOST/app@sha256:00", ("LOCALHOST", 443)),
    ],
)
def test_the_registry_in_the_name_of_an_image(image: str, registry: tuple[str, int] | None) -> None:
    assert registry_of(image) == registry


async def test_images_run_pause_stop_and_tell_how_they_ended(
    pod: Podman, center: AppsDouble, settings: AgentSettings, tmp_path: Path
) -> None:
    """Secrets are in no argument list; limits and exit codes are the engine's."""
    show = "/bin/busybox env; /bin/busybox id -u; exit 4"
    async with hosting_agent(center, tmp_path, settings) as agent:
        assert "image" in center.registrations[-1].kinds
        told = await center.want(
            0, image=IMAGE, command=("/bin/sh", "-c", show), restart="never", network=False,
            environment={"SECRET": "hush hush"}, limits=AppLimits(memory=64, processes=20),
        )  # fmt: skip
        counts = await center.want(1, image=IMAGE, command=COUNTING, restart="never")
        plain = await center.want(2, image=IMAGE)
        option = await center.want(3, image="--privileged", command=("x",))
        lines = await center.want(4, image=IMAGE, environment={"A": "two\nlines"})
        ended = await center.until_state(told, FAILED)
        assert (ended.exit_code, ended.reason) == (4, "exit code 4")
        said = bytes(center.logs[told]).decode()
        assert "SECRET=hush hush\n" in said
        assert "IMAGES_OWN=yes\n" in said
        assert f"SKEP_AGENT={agent.agent.id}\n" in said
        assert center.token not in said
        refused = await center.until_state(option, FAILED)
        assert refused.reason == "'--privileged' is not a valid image name"
        assert "line break" in (await center.until_state(lines, FAILED)).reason
        await center.until_state(plain, DONE)
        assert center.logs[plain] == b"from the image\n"
        await center.until_log(counts, b"begun")
        names = await asyncio.to_thread(pod.names)
        assert names == [f"skep-{agent.agent.id}-app-run-1-1"]
        await center.change(1, state=PAUSED)
        await center.until_state(counts, PAUSED)
        await center.change(1, state=STOPPED)
        stopped = await center.until_state(counts, STOPPED)
        assert (stopped.exit_code, stopped.reason) == (9, "stopped by command; exit code 9")
    assert await asyncio.to_thread(pod.names) == []


@pytest.mark.slow  # podman tries for seconds to pull it
async def test_an_image_that_cannot_be_had_says_so(
    center: AppsDouble, settings: AgentSettings, tmp_path: Path
) -> None:
    async with hosting_agent(center, tmp_path, settings):
        key = await center.want(0, image="localhost/skep-none")
        report = await center.until_state(key, FAILED)
    assert "cannot pull image 'localhost/skep-none'" in report.reason


async def test_a_killed_agent_leaves_no_container(
    pod: Podman, center: AppsDouble, tmp_path: Path
) -> None:
    """SIGKILL: a guard removes what is left. Where the guard is killed too, the next agent
    does it."""
    token = tmp_path / "token"
    token.write_text(center.token)
    env = {
        **pod.environment,
        "SKEP_AGENT_CONTAINERS": "true",
        "SKEP_AGENT_CONTAINER_OPTIONS": ",".join(pod.options),
    }
    agent = AgentProcess(tmp_path / "a", [center.url], token, env)
    try:
        await asyncio.to_thread(agent.start)
        key = await center.want(image=IMAGE, command=COUNTING)
        await center.until_log(key, b"begun")
        os.kill(agent.pid, signal.SIGKILL)
        await asyncio.to_thread(agent.wait)
        await until(lambda: pod.names() == [], seconds=60)
        await asyncio.to_thread(agent.start)
        await center.until(lambda: bytes(center.logs[key]).count(b"begun") == 2, seconds=60)
        await asyncio.to_thread(agent.kill)  # with its children
        assert await asyncio.to_thread(pod.names) != []
        await center.want_no_more()
        await asyncio.to_thread(agent.start)
        assert await asyncio.to_thread(pod.names) == []
    finally:
        await asyncio.to_thread(agent.stop)
