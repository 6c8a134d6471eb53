"""Application jobs: a package or an image with a command line, run on n agents. Pure data.

`AppPart` is what a job's document says; `AppSpec` is what an agent needs to run it;
`Instance` is one of the n as the store knows it. An instance belongs to one agent at a time:
its token rises with every placing, and whoever comes with an older one is refused.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from skep.model.message_bounds import SHORT_LIST, Name, Number, Real, Text, Texts
from skep.model.states import RunState

#: What an agent offers (in `Registration.kinds`) that runs packages, and that runs images.
APP_KIND, IMAGE_KIND = "app", "image"

Restart = Literal["never", "on-failure", "always"]
VariableName = Annotated[str, Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$(?!\n)")]
Argument = Annotated[str, Meta(max_length=32_768)]


class AppLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What one instance may use; 0 = as much as its agent lets it."""

    #: Megabytes of memory.
    memory: Annotated[int, Meta(ge=0, le=2**20)] = 0
    #: Cores; where the machine can divide them.
    cpus: Annotated[float, Meta(ge=0, le=1024)] = 0.0
    #: Processes and threads.
    processes: Annotated[int, Meta(ge=0, le=65536)] = 0
    #: Open files of one process.
    files: Annotated[int, Meta(ge=0, le=1_048_576)] = 0
    #: Seconds after which it is stopped and has failed.
    time: Annotated[float, Meta(ge=0, le=31_536_000)] = 0.0
    #: Bytes of log that the center keeps of one instance; the oldest go first.
    log: Annotated[int, Meta(ge=4096, le=2**34)] = 16 * 2**20


class AppPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """An application, on as many agents as `placement` says. It has a package or an image."""

    #: The command line: program and arguments, never a line for a shell.
    command: Annotated[tuple[Argument, ...], Meta(max_length=1000)] = ()
    #: `git+URL@REF`, or a `.whl`, a `.zip` or a folder in the center's folder for jobs.
    package: Annotated[str, Meta(max_length=2000)] = ""
    #: A container image, such as `registry.example.org/team/app:1`.
    image: Annotated[str, Meta(max_length=500)] = ""
    #: When an instance that has ended is started again.
    restart: Restart = "on-failure"
    #: Starts after failures in a row; with one more the instance has failed.
    restarts: Annotated[int, Meta(ge=0, le=1_000_000)] = 5
    #: Set for the program.
    environment: dict[VariableName, Annotated[str, Meta(max_length=131_072)]] = msgspec.field(
        default_factory=dict
    )
    #: Set from secrets: variable -> the name of a file in the center's folder of secrets.
    secrets: dict[VariableName, Annotated[str, Meta(max_length=100)]] = msgspec.field(
        default_factory=dict
    )
    limits: AppLimits = AppLimits()
    #: Let it reach the network.
    network: bool = True
    #: Seconds between the wish that it ends (SIGTERM) and its end by force.
    stop_seconds: Annotated[float, Meta(ge=0, le=3600)] = 10.0
    #: Seconds without a word from its agent after which an instance is placed elsewhere; an
    #: agent that hears no center for almost as long stops it. 0 = it stays where it is.
    lost_seconds: Annotated[float, Meta(ge=0, le=604_800)] = 60.0

    @property
    def kind(self) -> str:
        """What an agent must offer."""
        return IMAGE_KIND if self.image else APP_KIND


class AppSpec(msgspec.Struct, frozen=True):
    """What an agent needs to run an instance. Secrets are in it: it is never shown or logged."""

    command: Annotated[tuple[Text, ...], Meta(max_length=SHORT_LIST)] = ()
    #: SHA-256 of the package's bytes, and what they are: `zip` or `wheel`.
    package: Name = ""
    package_kind: Name = ""
    #: The wheel's file name, which pip must know.
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
    """Where an instance is. The last three are its end."""

    #: No agent fits, or none has taken it yet.
    WAITING = "waiting"
    #: An agent fetches its package or starts it, or waits to start it again.
    STARTING = "starting"
    RUNNING = "running"
    PAUSED = "paused"
    #: It ended by itself, with exit code 0.
    DONE = "done"
    FAILED = "failed"
    #: It ended because somebody said so.
    STOPPED = "stopped"


INSTANCE_ENDS = frozenset({InstanceState.DONE, InstanceState.FAILED, InstanceState.STOPPED})


class Instance(msgspec.Struct, frozen=True):
    """One of the n processes (or containers) of an application's run."""

    run: str
    no: int
    state: InstanceState
    #: "" = no agent fits yet.
    agent: str = ""
    #: Rises with every placing.
    token: int = 0
    #: Rises with every restart that a person asks for; the agent starts it anew when it sees it.
    round: int = 0
    #: Times that a process of it was begun, over all agents.
    starts: int = 0
    exit_code: int | None = None
    #: For people: why it is in its state.
    reason: str = ""
    placed_at: float = 0.0
    #: When it came into its state.
    changed_at: float = 0.0
    #: A person said that it shall not run.
    halted: bool = False
    #: Bytes that it wrote, as far as they came here; how many of them, the oldest, were
    #: deleted again; and how many an agent had to drop.
    log_end: int = 0
    log_start: int = 0
    log_lost: int = 0

    @property
    def ended(self) -> bool:
        return self.state in INSTANCE_ENDS


def desired_state_for(run: RunState, halted: bool) -> InstanceState:
    """What an instance shall be. It follows from the run alone, so that nobody can forget to
    pass on a pause; a run that has failed rests, and nothing of it goes on meanwhile."""
    if halted or run not in {RunState.RUNNING, RunState.PAUSED}:
        return InstanceState.STOPPED
    return InstanceState.PAUSED if run is RunState.PAUSED else InstanceState.RUNNING
