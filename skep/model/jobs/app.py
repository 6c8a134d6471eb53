"""Application jobs: a package or an image with a command line, run on n agents. Pure data.

`AppPart` is the part of a job's document; `AppSpec` is what an agent needs to run it;
`Instance` is one of the n copies in the store. An instance belongs to one agent at a time: its
token rises with every placement, and calls with an older token are refused.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from skep.model.message_bounds import SHORT_LIST, Name, Number, Real, Text, Texts
from skep.model.states import RunState

#: The kinds (in `Registration.kinds`) of agents that run packages, and that run images.
APP_KIND, IMAGE_KIND = "app", "image"

Restart = Literal["never", "on-failure", "always"]
VariableName = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$(?!\n)")]
Argument = Annotated[str, Meta(max_length=32_768)]


class AppLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Limits of one instance; 0 = the limit of its agent."""

    #: Megabytes of memory.
    memory: Annotated[int, Meta(ge=0, le=2**20)] = 0
    #: CPU cores, where the machine supports such a limit.
    cpus: Annotated[float, Meta(ge=0, le=1024)] = 0.0
    #: Processes and threads.
    processes: Annotated[int, Meta(ge=0, le=65536)] = 0
    #: Open files of one process.
    files: Annotated[int, Meta(ge=0, le=1_048_576)] = 0
    #: Seconds after which it is stopped and counts as failed.
    time: Annotated[float, Meta(ge=0, le=31_536_000)] = 0.0
    #: Bytes of log that the center keeps of one instance; the oldest are deleted first.
    log: Annotated[int, Meta(ge=4096, le=2**34)] = 16 * 2**20


class AppPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """An application on the number of agents in `placement`. It has a package or an image."""

    #: The command line: program and arguments; no shell interprets it.
    command: Annotated[tuple[Argument, ...], Meta(max_length=1000)] = ()
    #: `git+URL@REF`, or a `.whl`, a `.zip` or a folder in the center's folder for jobs.
    package: Annotated[str, Meta(max_length=2000)] = ""
    #: A container image, such as `registry.example.org/team/app:1`.
    image: Annotated[str, Meta(max_length=500)] = ""
    #: When an instance that has ended is restarted.
    restart: Restart = "on-failure"
    #: Maximum restarts after consecutive failures; then the instance has failed.
    restarts: Annotated[int, Meta(ge=0, le=1_000_000)] = 5
    #: Environment variables of the program.
    environment: dict[VariableName, Annotated[str, Meta(max_length=131_072)]] = msgspec.field(
        default_factory=dict
    )
    #: Variables set from secrets: variable -> name of a file in the center's folder of secrets.
    secrets: dict[VariableName, Annotated[str, Meta(max_length=100)]] = msgspec.field(
        default_factory=dict
    )
    limits: AppLimits = AppLimits()
    #: Allow network access.
    network: bool = True
    #: Seconds between SIGTERM and SIGKILL.
    stop_seconds: Annotated[float, Meta(ge=0, le=3600)] = 10.0
    #: Seconds without a heartbeat of its agent after which an instance is placed on another one;
    #: an agent that reaches no center for almost as long stops it. 0 = it stays where it is.
    lost_seconds: Annotated[float, Meta(ge=0, le=604_800)] = 60.0

    @property
    def kind(self) -> str:
        """The kind that an agent must offer."""
        return IMAGE_KIND if self.image else APP_KIND


class AppSpec(msgspec.Struct, frozen=True):
    """What an agent needs to run an instance. It contains secrets and is never shown or logged."""

    command: Annotated[tuple[Text, ...], Meta(max_length=SHORT_LIST)] = ()
    #: SHA-256 of the package's bytes, and its format: `zip` or `wheel`.
    package: Name = ""
    package_kind: Name = ""
    #: The file name of the wheel, which pip needs.
    package_name: Name = ""
    image: Name = ""
    restart: Restart = "on-failure"
    restarts: Number = 5
    environment: Texts = msgspec.field(default_factory=dict)
    limits: AppLimits = AppLimits()
    network: bool = True
    stop_seconds: Real = 10.0
    lost_seconds: Real = 60.0

    def __repr__(self) -> str:
        return f"AppSpec({(self.image or self.package)!r}, {self.command!r})"


class InstanceState(StrEnum):
    """The state of an instance. The last three are final."""

    #: No agent fits, or none has taken it yet.
    WAITING = "waiting"
    #: An agent fetches its package, starts it, or waits to restart it.
    STARTING = "starting"
    RUNNING = "running"
    PAUSED = "paused"
    #: It exited with code 0.
    DONE = "done"
    FAILED = "failed"
    #: It was stopped by a user.
    STOPPED = "stopped"


INSTANCE_ENDS = frozenset({InstanceState.DONE, InstanceState.FAILED, InstanceState.STOPPED})


class Instance(msgspec.Struct, frozen=True):
    """One of the n processes (or containers) of an application's run."""

    run: str
    no: int
    state: InstanceState
    #: "" = no agent fits yet.
    agent: str = ""
    #: Rises with every placement.
    token: int = 0
    #: Rises with every restart that a user requests; the agent then restarts it.
    round: int = 0
    #: Number of process starts, over all agents.
    starts: int = 0
    exit_code: int | None = None
    #: Why it is in its state.
    reason: str = ""
    placed_at: float = 0.0
    #: When it entered its state.
    changed_at: float = 0.0
    #: A user stopped it.
    halted: bool = False
    #: Bytes that it wrote and that arrived here; how many of them, the oldest, were deleted
    #: since; and how many an agent had to drop.
    log_end: int = 0
    log_start: int = 0
    log_lost: int = 0

    @property
    def ended(self) -> bool:
        return self.state in INSTANCE_ENDS


def desired_state_for(run: RunState, halted: bool) -> InstanceState:
    """The desired state of an instance. It follows from the run alone, so that a pause cannot be
    missed; a failed run is at rest, and its instances stop."""
    if halted or run not in {RunState.RUNNING, RunState.PAUSED}:
        return InstanceState.STOPPED
    return InstanceState.PAUSED if run is RunState.PAUSED else InstanceState.RUNNING
