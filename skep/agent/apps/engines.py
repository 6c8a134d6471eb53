"""Finds the container engines of this machine, and their state.

An agent looks for the one that it uses; `skep doctor` checks all of them. It fetches and starts no
image. All functions block for a moment.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from skep.agent.apps.container import ContainerEngine
from skep.settings import AgentSettings

#: In the order in which they are tried.
ENGINES = ("podman", "docker")
#: Queries for each engine: whether it runs without root, its version, and for podman the users
#: that a container can have.
_QUESTIONS = {
    "podman": "{{.Host.Security.Rootless}}\t{{.Version.Version}}\t{{json .Host.IDMappings}}",
    "docker": "{{json .SecurityOptions}}\t{{.ServerVersion}}\t{}",
}
_WITHOUT_ROOT = ("true", "name=rootless")


@dataclass(frozen=True, slots=True)
class EngineState:
    """The state of an engine for this user."""

    name: str
    #: Why it cannot be used, "" when it can.
    trouble: str = ""
    version: str = ""
    rootless: bool = False
    #: A container has one user only: many images cannot be unpacked.
    one_user: bool = False

    @property
    def works(self) -> bool:
        return not self.trouble


class _Range(msgspec.Struct):
    size: int


class _Mappings(msgspec.Struct):
    uidmap: list[_Range] | None = None


def installed(settings: AgentSettings, agent: str = "") -> Iterator[ContainerEngine]:
    """The installed engines, working or not."""
    for name in ENGINES:
        if program := shutil.which(name):
            yield ContainerEngine(program, settings.container_options, agent)


def find_engine(settings: AgentSettings, agent: str) -> ContainerEngine | str:
    """The first engine that works; or why there is none."""
    if not settings.containers:
        return "agent.containers is off"
    said = ""
    for engine in installed(settings, agent):
        code, said = engine.call(["ps", "--quiet"])
        if code == 0:
            return engine
        said = f"{engine.kind} does not answer: {said}"
    return said or "neither podman nor docker is installed"


def state_of(engine: ContainerEngine) -> EngineState:
    """Queries the engine: that needs everything but an image."""
    code, said = engine.call(["info", "--format", _QUESTIONS[engine.kind]])
    if code:
        return EngineState(engine.kind, " ".join(said.split())[-300:] or f"exit code {code}")
    answer = said.splitlines()[-1].split("\t") if said else []
    if len(answer) != len(_QUESTIONS[engine.kind].split("\t")):
        return EngineState(engine.kind, f"unexpected answer: {said[-200:]!r}")
    return EngineState(
        engine.kind,
        version=answer[1],
        rootless=any(word in answer[0] for word in _WITHOUT_ROOT),
        one_user=_one_user(answer[2]),
    )


def _one_user(text: str) -> bool:
    """Root has no mapping, and can use all users."""
    try:
        ranges = msgspec.json.decode(text, type=_Mappings).uidmap
    except msgspec.DecodeError:
        return False
    return bool(ranges) and sum(one.size for one in ranges or ()) <= 1
