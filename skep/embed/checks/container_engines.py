"""`skep doctor`: container engines: which are installed, whether they work for this user, and what
to install or fix. It starts no image and changes nothing.
"""

from __future__ import annotations

import os
import pwd
from typing import TYPE_CHECKING

from skep.embed.checks.finding import Finding
from skep.model.jobs.app import IMAGE_KIND
from skep.settings import AgentSettings

if TYPE_CHECKING:
    from skep.agent.apps.engines import EngineState

INSTALL = "install podman (on Debian: apt install podman uidmap slirp4netns)"
START = {
    "podman": "make `podman info` work for this user: without root it needs the program"
    " newuidmap (on Debian: apt install uidmap) and user namespaces",
    "docker": "start it (systemctl start docker) and allow this user to access it, or " + INSTALL,
}
RANGES = (
    "usermod --add-subuids 100000-165535 --add-subgids 100000-165535 {user}, then"
    " `podman system migrate` as that user"
)


def container_engines(settings: AgentSettings) -> list[Finding]:
    """Each installed engine, then whether images run here. Blocks."""
    from skep.agent.apps.engines import installed, state_of

    return judge(settings, [state_of(engine) for engine in installed(settings)], _user())


def judge(settings: AgentSettings, states: list[EngineState], user: str) -> list[Finding]:
    """An engine that is not needed is never a problem."""
    used = next((state for state in states if state.works), None)
    wanted = settings.containers and IMAGE_KIND not in settings.kinds_off
    findings = [_engine(state, user, needed=wanted and state is used) for state in states]
    return [*findings, _images(settings, not states, used)]


def _engine(state: EngineState, user: str, *, needed: bool) -> Finding:
    if state.trouble:
        told, fix = f"installed, but does not work for {user}: {state.trouble}", START[state.name]
    elif state.one_user:
        told = f"{state.version}, for {user}, with one user in a container: many images need more"
        fix = RANGES.format(user=user)
    else:
        root = "without root" if state.rootless else "as root; without root is safer"
        return Finding(state.name, True, f"{state.version} works for {user}, {root}")
    if needed:
        return Finding(state.name, False, told, fix)
    return Finding(state.name, True, f"{told}; to use it, {fix}")


def _images(settings: AgentSettings, none_here: bool, used: EngineState | None) -> Finding:
    if IMAGE_KIND in settings.kinds_off:
        return Finding("images", True, f"not run here: {IMAGE_KIND} is in agent.kinds_off")
    lack = "neither podman nor docker is installed" if none_here else "no engine here works"
    fix = INSTALL if none_here else "fix one of the engines above"
    if not settings.containers:
        then = f"{used.name} would run them" if used else f"{lack}: {fix}"
        return Finding("images", True, f"not run here: agent.containers is off; {then}")
    if used is not None:
        return Finding("images", True, f"run by {used.name}")
    return Finding("images", False, f"agent.containers is on, but {lack}", fix)


def _user() -> str:
    number = os.geteuid()
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"
