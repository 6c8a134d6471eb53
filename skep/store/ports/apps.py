"""The store's contract for application jobs. The rules of `store/ports` apply.

A center places instances, and agents report them. A report or a piece of log must come from
the agent of the newest placement and carry its token. Packages are stored in chunks, so that
any center can serve a package that another one has packed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from skep.model.jobs.app import AppSpec, Instance, InstanceState
from skep.model.jobs.job import RunLease


class AppRun(msgspec.Struct, frozen=True):
    """How the instances of a run are started; `secrets` are names, and not in the spec."""

    run: str
    spec: AppSpec
    secrets: dict[str, str]
    at: float


class ReportedInstance(msgspec.Struct, frozen=True):
    """An agent's report about one instance."""

    run: str
    no: int
    token: int
    state: InstanceState
    round: int = 0
    #: The token of its placement.
    starts: int = 0
    exit_code: int | None = None
    reason: str = ""


class DesiredInstance(msgspec.Struct, frozen=True):
    """The desired state of an instance of an agent."""

    instance: Instance
    app: AppRun
    state: InstanceState


class LogPiece(msgspec.Struct, frozen=True):
    """Bytes of log as an agent sends them; `offset` counts from the placement."""

    run: str
    no: int
    token: int
    offset: int
    data: bytes
    #: Bytes before `offset` that the agent has dropped.
    dropped: int = 0


class LogPart(msgspec.Struct, frozen=True):
    """A part of an instance's log; `start` is its offset in the whole log."""

    start: int
    data: bytes
    #: The current end of the whole log.
    log_end: int
    #: Offset of the oldest byte that is kept, which is the number of deleted bytes.
    log_start: int
    #: Bytes that agents dropped before they could send them.
    lost: int


class Apps(Protocol):
    """Used by `jobs` and by the routes of agents."""

    async def create(
        self,
        run_id: str,
        spec: AppSpec,
        secrets: Mapping[str, str],
        agents: Sequence[str],
        now: float,
        lease: RunLease | None = None,
    ) -> list[Instance]:
        """One instance for each agent, placed there; once per run. Returns the stored ones.
        Raises UnknownRun. Here and below: raises LostLease when `lease` is given and another
        center has taken the run."""

    async def get(self, run_id: str) -> AppRun | None:
        """None for a run without an application, or whose instances are not created yet."""

    async def of(self, run_id: str) -> list[Instance]:
        """Sorted by number."""

    async def place(
        self, old: Instance, agent: str, reason: str, now: float, lease: RunLease | None = None
    ) -> bool:
        """The instance moves to another agent ("" = none yet) under the next token. False when
        another center placed it meanwhile, or when it has ended."""

    async def end(
        self,
        old: Instance,
        state: InstanceState,
        reason: str,
        now: float,
        lease: RunLease | None = None,
    ) -> bool:
        """End an instance by decision of the center; False as with `place`."""

    async def restart(
        self, run_id: str, no: int, now: float, lease: RunLease | None = None
    ) -> Instance:
        """A live instance gets a higher round; an ended one waits for a new placement. Raises
        NotFound, and Conflict when its run is not running."""

    async def stop(self, run_id: str, no: int, now: float) -> Instance:
        """Stop it until it is restarted. Raises NotFound."""

    async def report(self, agent: str, told: Sequence[ReportedInstance], now: float) -> int:
        """Store the states of instances; returns how many of them are not this agent's under that
        token. Reports about an older round, or an ended instance, change nothing."""

    async def desired(self, agent: str) -> list[DesiredInstance]:
        """Instances of the agent that have not ended."""

    async def add_log(self, agent: str, piece: LogPiece, limit: int, now: float) -> int:
        """Store the new part of a piece, and delete the oldest bytes over `limit`; returns the
        offset of the first byte that the store does not have. Raises StaleToken and NotFound."""

    async def read_log(self, run_id: str, no: int, start: int, limit: int) -> LogPart:
        """From `start` on, or from the oldest byte that is kept; a negative `start` counts from
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
    """Used by `jobs`, and by agents through their route."""

    async def begin(self, package: Package, now: float) -> bool:
        """True when the package is complete already. Else its chunks follow; chunks of an earlier
        attempt may stay. It counts as used from now on, and is not deleted for a while."""

    async def add(self, digest: str, n: int, data: bytes) -> None:
        """Store the n-th chunk; a repeated call changes nothing. Raises NotFound before `begin`."""

    async def finish(self, digest: str) -> bool:
        """Mark it complete; False when bytes are missing."""

    async def get(self, digest: str) -> Package:
        """A complete package. Raises NotFound."""

    async def chunk(self, digest: str, n: int) -> bytes:
        """b"" after the last one."""

    async def wanted_by(self, digest: str, agent: str) -> bool:
        """Whether the agent has an instance that runs it."""

    async def forget(self, before: float, limit: int) -> int:
        """Delete chunks of packages that were not used since then and that no open run needs;
        returns how many chunks were deleted, at most `limit`."""
