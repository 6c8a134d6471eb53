"""The store's contract for agents and tokens. The rules of `store/ports` apply.

Called by centers only; times are the center's, and tokens are passed as digests only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from skep.model.fleet.agent import AgentView, Arrival, Order, Registration, Vitals
from skep.model.fleet.token import FoundToken, Grant, TokenView
from skep.model.people.scope import Scope

#: Agents and what each of them said of its machine.
VitalsByAgent = Sequence[tuple[str, Vitals]]


class Agents(Protocol):
    """Used by `placement`."""

    async def files_secret(self, fresh: bytes) -> bytes:
        """The secret from which the keys of agents' files are derived. `fresh` is stored when there
        is none; every later caller gets the same one."""

    async def register(
        self, registration: Registration, now: float, arrival: Arrival | None = None
    ) -> AgentView:
        """Create or update an agent; registering twice is one agent.

        A new process raises the agent's session, which fences out its earlier ones, and completes
        the commands that ended its predecessor (exit, restart). Raises Fenced for a process of an
        earlier session, and for one whose folder is an old copy while the agent runs elsewhere.
        """

    async def heartbeat(
        self, beats: VitalsByAgent, now: float, sessions: Mapping[str, int] | None = None
    ) -> list[str]:
        """Store heartbeats, many at once; returns ids that are not registered, or whose heartbeat
        is from an earlier session."""

    async def all(self) -> list[AgentView]:
        """Every agent that ever registered, by name."""

    async def news(self, since: float, silent: float, ahead: float) -> list[AgentView]:
        """Agents that changed since then in anything but a heartbeat, those last heard at `silent`
        or before, and those heard at `ahead` or later, when another clock was ahead."""

    async def get(self, agent_id: str) -> AgentView:
        """Raises UnknownAgent."""

    async def enable(
        self, agent_id: str, enabled: bool, aside: str = "", now: float = 0.0
    ) -> AgentView:
        """`aside` says why it gets no work: cordoned, draining. Enabling an agent ends its
        draining. Raises UnknownAgent."""

    async def label(
        self, agent_id: str, changes: Mapping[str, str | None], now: float
    ) -> AgentView:
        """Set labels that override those of the agent; None removes one. Raises
        UnknownAgent, and InvalidInput for too many."""

    async def command(self, agent_id: str, name: str, now: float) -> Order:
        """Store a command until it is acknowledged. Raises UnknownAgent."""

    async def commands(self, agent_id: str, limit: int = 20) -> list[Order]:
        """Newest first."""

    async def acknowledged(self, agent_id: str, no: int, now: float) -> None:
        """Every command up to that number is done."""

    async def vitals(self, agent_id: str, since: float) -> list[tuple[float, Vitals]]:
        """Heartbeat history for charts, oldest first."""

    async def forget_vitals(self, before: float) -> int:
        """Delete older history, to keep it bounded."""


class Tokens(Protocol):
    """Used by the center's authentication. Only hashes are stored."""

    async def add(
        self,
        digest: bytes,
        role: str,
        subject: str,
        now: float,
        note: str = "",
        expires_at: float | None = None,
        grant: Grant | None = None,
        scope: Scope | None = None,
    ) -> None:
        """Store a token; adding the same digest again changes nothing."""

    async def used(self, uses: Mapping[bytes, float]) -> None:
        """Note when tokens were used last; unknown ones are ignored."""

    async def find(self, digest: bytes) -> FoundToken | None:
        """A token that was not revoked. The caller checks whether it has expired; `join` checks
        whether a one-time token was used."""

    async def find_many(self, digests: Sequence[bytes]) -> dict[bytes, FoundToken]:
        """`find` for many at once; tokens that `find` does not return are absent."""

    async def revoked(self, digest: bytes) -> bool:
        """Whether a token was valid once and has been revoked; False for an unknown one."""

    async def join(
        self, digest: bytes, agent: str, credential: bytes, now: float, *, dry: bool = False
    ) -> Grant:
        """Use up a one-time token and make `credential` the agent's credential.

        The same call again gives the same answer. Raises Unauthorized for a token that is not
        valid, Conflict for a token that another agent has used and for an agent that exists
        already, Forbidden when the token is for another agent. `dry` changes nothing.
        """

    async def all(self, limit: int = 1000, after: str = "") -> list[TokenView]:
        """Newest first, without those of runs. `after`: those that follow the token of that id."""

    async def revoke(self, subject: str) -> int:
        """Revoke the tokens of a subject, except those of a run with the same name; returns how
        many."""

    async def revoke_driver(self, run: str, digest: bytes | None = None) -> int:
        """Revoke the tokens for driving that run: one of them, or all."""

    async def revoke_one(self, token: str) -> TokenView:
        """Revoke a token by its name in `all`. Raises NotFound."""

    async def forget(self, before: float) -> int:
        """Delete rows of tokens that ended before then; returns how many."""
