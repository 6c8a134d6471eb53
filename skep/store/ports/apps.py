"""What centers ask of a store about application jobs; the rules of `store/ports` hold.

Instances are placed by a center and reported by agents. Whoever reports or sends log must be
the agent of the newest placing and carry its token. Packages are kept in chunks, so that any
center can hand out what another one has packed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from skep.model.jobs.app import AppSpec, Instance, InstanceState
from skep.model.jobs.job import RunLease


class AppRun(msgspec.Struct, frozen=True):
    """What the instances of a run are started with; `secrets` by name, in no spec."""

    run: str
    spec: AppSpec
    secrets: dict[str, str]
    at: float


class ReportedInstance(msgspec.Struct, frozen=True):
    """What an agent says about one instance."""

    run: str
    no: int
    token: int
    state: InstanceState
    round: int = 0
    #: Under this token.
    starts: int = 0
    exit_code: int | None = None
    reason: str = ""


class DesiredInstance(msgspec.Struct, frozen=True):
    """What an agent shall do about an instance of its own."""

    instance: Instance
    app: AppRun
    state: InstanceState


class LogPiece(msgspec.Struct, frozen=True):
    """Bytes of log as an agent sends them; `offset` counts since the placing."""

    run: str
    no: int
    token: int
    offset: int
    data: bytes
    #: Bytes before `offset` that the agent has not any more.
    dropped: int = 0


class LogPart(msgspec.Struct, frozen=True):
    """A part of an instance's log; `start` is where it begins in the whole."""

    start: int
    data: bytes
    #: Where the whole ends now.
    log_end: int
    #: The oldest byte that is still kept: so many were deleted.
    log_start: int
    #: Bytes that agents had to drop before they could send them.
    lost: int


class Apps(Protocol):
    """Asked by `jobs` and by the routes of agents."""

    async def create(
        self,
        run_id: str,
        spec: AppSpec,
        secrets: Mapping[str, str],
        agents: Sequence[str],
        now: float,
        lease: RunLease | None = None,
    ) -> list[Instance]:
        """One instance for each agent, placed there; once per run. Gives back those that are
        kept. Raises UnknownRun. Here and below: raises LostLease when `lease` is given and
        another center has taken the run."""

    async def get(self, run_id: str) -> AppRun | None:
        """None for a run of no application, or whose instances are not made yet."""

    async def of(self, run_id: str) -> list[Instance]:
        """By their numbers."""

    async def place(
        self, old: Instance, agent: str, reason: str, now: float, lease: RunLease | None = None
    ) -> bool:
        """The instance is another agent's ("" = nobody's yet) from now on, under the next
        token. False when it was placed by somebody else meanwhile, or has ended."""

    async def end(
        self,
        old: Instance,
        state: InstanceState,
        reason: str,
        now: float,
        lease: RunLease | None = None,
    ) -> bool:
        """The center itself says that it is over; False as with `place`."""

    async def restart(
        self, run_id: str, no: int, now: float, lease: RunLease | None = None
    ) -> Instance:
        """A live one gets a higher round; one that has ended waits to be placed again. Raises
        NotFound, and Conflict when its run is not running."""

    async def stop(self, run_id: str, no: int, now: float) -> Instance:
        """It shall stop, and stay so until it is restarted. Raises NotFound."""

    async def report(self, agent: str, told: Sequence[ReportedInstance], now: float) -> int:
        """Note how instances are; returns how many of them are not this agent's under that
        token. What is told of an older round, or of one that has ended, changes nothing."""

    async def desired(self, agent: str) -> list[DesiredInstance]:
        """Instances that are the agent's and have not ended."""

    async def add_log(self, agent: str, piece: LogPiece, limit: int, now: float) -> int:
        """Keep what is new of it, with the oldest deleted over `limit` bytes; returns the
        offset from which on the store knows nothing. Raises StaleToken and NotFound."""

    async def read_log(self, run_id: str, no: int, start: int, limit: int) -> LogPart:
        """From there on, or from the oldest byte that is kept; a negative `start` counts from
        the end. Raises NotFound."""


class Package(msgspec.Struct, frozen=True):
    """Bytes that agents install or unpack, named by their SHA-256."""

    digest: str
    #: `zip` or `wheel`.
    kind: str
    #: A wheel's file name.
    name: str
    size: int


class Packages(Protocol):
    """Asked by `jobs`, and by agents through their route."""

    async def begin(self, package: Package, now: float) -> bool:
        """True when it is here already. Else its chunks come now; whatever is there of it from
        an earlier try may stay. It is used from now on, and not forgotten for a while."""

    async def add(self, digest: str, n: int, data: bytes) -> None:
        """The n-th chunk; told again it changes nothing. Raises NotFound before `begin`."""

    async def finish(self, digest: str) -> bool:
        """All chunks are there; False when bytes are missing."""

    async def get(self, digest: str) -> Package:
        """One that is complete. Raises NotFound."""

    async def chunk(self, digest: str, n: int) -> bytes:
        """b"" after the last one."""

    async def wanted_by(self, digest: str, agent: str) -> bool:
        """Has the agent an instance that runs it?"""

    async def forget(self, before: float, limit: int) -> int:
        """Delete chunks of packages that nobody used since then and no open run needs;
        returns how many chunks went, at most `limit`."""
