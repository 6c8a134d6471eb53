"""What centers ask of a store about agents and tokens. The rules of `store/ports` hold here.

Whoever asks is a center; times are the center's, and tokens come as digests alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from skep.model.fleet.agent import AgentView, Arrival, Order, Registration, Vitals
from skep.model.fleet.token import FoundToken, Grant, TokenView

#: Agents and what each of them said of its machine.
VitalsByAgent = Sequence[tuple[str, Vitals]]


class Agents(Protocol):
    """Asked by `placement`."""

    async def files_secret(self, fresh: bytes) -> bytes:
        """The secret from which the keys of agents' files are derived; `fresh` is kept when
        there is none, and every later caller gets the same one."""

    async def register(
        self, registration: Registration, now: float, arrival: Arrival | None = None
    ) -> AgentView:
        """Keep or refresh an agent; registering twice is one agent.

        A new process raises the agent's session, which fences its earlier ones out, and ends
        what it was told to end for (exit, restart). Raises Fenced for a process of an earlier
        session, and for one whose folder is an old copy while the agent lives elsewhere.
        """

    async def heartbeat(
        self, beats: VitalsByAgent, now: float, sessions: Mapping[str, int] | None = None
    ) -> list[str]:
        """Note heartbeats, many at once; returns ids that are not registered, or that beat
        under an earlier session than theirs."""

    async def all(self) -> list[AgentView]:
        """Every agent that ever registered, by name."""

    async def news(self, since: float, silent: float, ahead: float) -> list[AgentView]:
        """Those about whom anything but a beat has changed since then, those last heard at
        `silent` or before, and those heard at `ahead` or later, as another clock had it."""

    async def get(self, agent_id: str) -> AgentView:
        """Raises UnknownAgent."""

    async def enable(
        self, agent_id: str, enabled: bool, aside: str = "", now: float = 0.0
    ) -> AgentView:
        """`aside` says why it gets no work: cordoned, draining. An agent that gets work again
        need not drain any more. Raises UnknownAgent."""

    async def label(
        self, agent_id: str, changes: Mapping[str, str | None], now: float
    ) -> AgentView:
        """Set labels over those that the agent brings; None takes one away. Raises
        UnknownAgent, and InvalidInput for too many."""

    async def command(self, agent_id: str, name: str, now: float) -> Order:
        """Keep an order until it is obeyed. Raises UnknownAgent."""

    async def commands(self, agent_id: str, limit: int = 20) -> list[Order]:
        """Newest first."""

    async def acknowledged(self, agent_id: str, no: int, now: float) -> None:
        """Every order up to that number is done."""

    async def vitals(self, agent_id: str, since: float) -> list[tuple[float, Vitals]]:
        """Heartbeat history for charts, oldest first."""

    async def forget_vitals(self, before: float) -> int:
        """Keep the history bounded."""


class Tokens(Protocol):
    """Asked by the center's auth. Only hashes are kept."""

    async def add(
        self,
        digest: bytes,
        role: str,
        subject: str,
        now: float,
        note: str = "",
        expires_at: float | None = None,
        grant: Grant | None = None,
    ) -> None:
        """Keep a token; adding the same digest again changes nothing."""

    async def find(self, digest: bytes) -> FoundToken | None:
        """A token that was not revoked. Whether its time is over, the caller sees; whether a
        one-time token was used, `join` says."""

    async def find_many(self, digests: Sequence[bytes]) -> dict[bytes, FoundToken]:
        """`find` for many at once; what `find` would not give is absent."""

    async def revoked(self, digest: bytes) -> bool:
        """It was good once, and somebody has revoked it; False for one that nobody knows."""

    async def join(
        self, digest: bytes, agent: str, credential: bytes, now: float, *, dry: bool = False
    ) -> Grant:
        """Use up a one-time token and let `credential` be the agent from now on.

        The same call again gives the same answer. Raises Unauthorized for a token that is no
        good, Conflict for one that somebody else has used and for an agent that is there
        already, Forbidden when the token is for another agent. `dry` only looks.
        """

    async def all(self, limit: int = 1000, after: str = "") -> list[TokenView]:
        """Newest first, without those of runs. `after`: those behind the token of that id."""

    async def revoke(self, subject: str) -> int:
        """Tokens of that subject stop working, but for those of a run that has the same
        name; returns how many."""

    async def revoke_driver(self, run: str, digest: bytes | None = None) -> int:
        """Tokens for driving that run stop working: one of them, or all."""

    async def revoke_one(self, token: str) -> TokenView:
        """By the name that `all` gives. Raises NotFound."""

    async def forget(self, before: float) -> int:
        """Drop rows of tokens that ended before then; returns how many."""
