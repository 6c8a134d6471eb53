"""Registers the agent and sends heartbeats, independently of downloads and results.

Runs on the agent's event loop. A heartbeat is never queued: one that could not be sent is dropped,
and the next one sends the current state. A center that does not know the agent (any more) gets its
registration again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from math import inf
from pathlib import Path
from random import Random

from skep.agent.agent_session import AgentSession
from skep.errors import (
    Fenced,
    Forbidden,
    OldProtocol,
    Revoked,
    SkepError,
    Unauthorized,
    UnknownAgent,
)
from skep.model.block import Held
from skep.model.fleet.agent import Registration, Vitals
from skep.runtime.backoff import Backoff
from skep.runtime.clock import Clock
from skep.runtime.retry import retry
from skep.runtime.signals import WakeUp
from skep.wire.client import CenterClient
from skep.wire.messages import (
    HEARTBEAT_RUNS_MAX,
    Heartbeat,
    HeartbeatReply,
    Register,
    Registered,
)

log = logging.getLogger(__name__)

#: At the first start these mean a configuration error; later they may be a temporary problem of
#: a center, and the agent retries.
FATAL = (Unauthorized, Forbidden, OldProtocol)
#: These are not temporary: the center knows this agent and has fenced or revoked it. A center
#: that only does not know the token answers with another error.
FINAL = (Fenced, Revoked)
#: Seconds for the last heartbeat of an agent that ends by command.
LAST_WORD = 2.0
REGISTER = Backoff(first=0.5, cap=30.0)
#: Registrations of an agent with a damaged session file, before it ends as fenced: about a minute,
#: several times the time after which a center declares a process dead.
PAST_TRIES = 7
#: Maximum pause between retries while no center answers: less than the time after which a center
#: that comes back would declare the agent dead. At most one heartbeat interval, since no more
#: callers return at once than a center serves anyway, and everything else waits for this.
HEARTBEAT_CAP = 10.0
#: Minimum seconds of a heartbeat beyond its interval before a new connection is tried.
HEARTBEAT_MARGIN = 1.0
#: Maximum characters of a reported problem.
TROUBLE_LIMIT = 300
#: Maximum tickets that wait for a heartbeat; older ones are dropped.
ACKNOWLEDGED_KEPT = 500
#: Seconds before the agent counts as dead at which it stops sending requests to hosts that
#: another agent would get.
FENCE = 1.0


@dataclass(frozen=True, slots=True)
class HeartbeatHooks:
    """The calls of the heartbeat loop to the rest of the agent."""

    vitals: Callable[[], Vitals]
    held: Callable[[], list[Held]]
    answered: Callable[[list[Held], HeartbeatReply], Awaitable[None]]
    back: Callable[[], None]
    #: The stored runs, and the center's answer to a registration.
    runs: Callable[[], list[str]] = list
    taken: Callable[[Registered], Awaitable[None]] | None = None


class HeartbeatLoop:
    """`register` first, then `run` as a task."""

    def __init__(
        self,
        client: CenterClient,
        registration: Registration,
        pulse: HeartbeatHooks,
        clock: Clock,
        rng: Random,
        session: AgentSession | None = None,
    ) -> None:
        self._client = client
        self._registration = registration
        self._pulse = pulse
        self._session = session or AgentSession(Path())
        self._clock = clock
        self._rng = rng
        self._now = WakeUp(clock)
        self._known: Registered | None = None
        #: Errors since a center last answered, by code.
        self._troubles: set[str] = set()
        self._trouble = ("", 0.0)
        self._heard = clock.monotonic()
        #: When the last call was sent that a center accepted as a heartbeat, and the first of those
        #: without too long a gap between them.
        self._sent = -inf
        self._alive_since = inf
        self.beats = 0
        #: Set with the first of them.
        self.beaten = asyncio.Event()
        #: Number of stored runs that the last heartbeats have named.
        self._named = 0
        #: The newest executed command, and the newest acknowledged to a center.
        self._obeyed = 0
        self._told = 0
        #: Tickets of executed commands that are not acknowledged yet.
        self._tickets: list[str] = []

    def acknowledge(self, order: int) -> bool:
        """A command was executed; False when it was known. Acknowledged at once by a heartbeat."""
        if order <= self._obeyed:
            return False
        self._obeyed = order
        self.send_now()
        return True

    def answer(self, ticket: str) -> None:
        """A command was executed, and a caller waits for the acknowledgement."""
        self._tickets = [*self._tickets[-ACKNOWLEDGED_KEPT:], ticket]
        self.send_now()

    def send_now(self) -> None:
        """Send a heartbeat before the next one is due."""
        self._now.notify()

    def alive(self) -> bool:
        """Whether every center considers the agent alive now. False means that it is unknown: its
        blocks may have been leased to other agents."""
        return self._clock.monotonic() < self._sent + self._grace()

    @property
    def center_decodes(self) -> bool:
        """Whether the center decodes stored bodies: an older one returns them as they are."""
        return self._known is not None and self._known.encoded_bodies

    def alive_since(self, moment: float) -> bool:
        """Alive, and without a gap since then in which its blocks could have gone to others. An
        answer to a call that was sent before such a gap is outdated."""
        return self._alive_since <= moment and self.alive()

    def _grace(self) -> float:
        if self._known is None:
            return 0.0
        return self._known.alive_after - min(FENCE, self._known.alive_after / 4)

    def _lived(self, sent: float) -> None:
        if sent >= self._sent + self._grace():
            self._alive_since = sent
        self._sent = max(self._sent, sent)

    async def register(self) -> Registered:
        """Retry until a center accepts it; raises `FATAL` errors at the first start, Fenced when
        another process is this agent, and Revoked."""

        async def introduce() -> tuple[float, bool, Registered]:
            sent, held = self._clock.monotonic(), self._pulse.held()
            return sent, bool(held), await self._introduce(held)

        sent, holds, known = await retry(
            introduce, SkepError, self._after_refusal, self._clock.sleep
        )
        self._known = known
        if not holds:  # else the answer to the next heartbeat says which leases are still valid
            self._lived(sent)
        self._in_touch()
        if self._pulse.taken is not None:
            await self._pulse.taken(known)
        log.info("registered at %s as %s", self._client.address, self._registration.id)
        return known

    def _after_refusal(self, error: SkepError, failures: int) -> float | None:
        """The pause before the next registration; None when none can succeed."""
        if isinstance(error, Fenced):
            final = not self._may_be_own_past(failures - 1)
        else:
            final = isinstance(error, FINAL) or (self._known is None and isinstance(error, FATAL))
        if final:
            return None
        self._lost_touch(error)
        return REGISTER.delay(failures, self._rng)

    def _may_be_own_past(self, attempt: int) -> bool:
        """Refused as an older copy, with a damaged session file: the other process may be the last
        one of this folder, which the center considers alive for some seconds more."""
        damage = self._session.damage
        if not damage or self._known is not None or attempt >= PAST_TRIES:
            return False
        if attempt == 0:
            log.warning("%s: waiting until the center considers the last session dead", damage)
        return True

    async def _introduce(self, held: list[Held]) -> Registered:
        """Registers with the held blocks: its other leases go to other agents at once."""
        mine = self._session
        message = Register(
            self._registration,
            holding=held,
            session=mine.number,
            mark=mine.mark,
            marks=mine.known,
            runs=self._pulse.runs(),
        )
        answer = await self._client.register(message)
        self._client.agent_session = mine.number = answer.session
        return answer

    async def sign_off(self) -> None:
        """Last call of a draining agent that aborted a lease call: a block may have been on its
        way, and must not wait until its lease expires."""
        try:
            await self._introduce(self._pulse.held())
        except SkepError as error:
            log.debug("leave: %s", error.detail)

    async def final_heartbeat(self) -> None:
        """Last heartbeat of an agent that ends: acknowledges executed commands."""
        if self._obeyed > self._told:
            await self._send(LAST_WORD)

    async def run(self) -> None:
        """Send heartbeats without end."""
        while True:
            rules = self._known or await self.register()
            began = self._clock.monotonic()
            pause = rules.heartbeat_every
            if not await self._send(_answer_seconds(rules)):
                longest = min(pause, HEARTBEAT_CAP)
                pause = Backoff(longest, longest).delay(1, self._rng)
            # A slow attempt was pause enough, whatever its result.
            pause -= self._clock.monotonic() - began
            await self._now.wait(max(pause, 0.0))

    async def _send(self, seconds: float) -> bool:
        held = self._pulse.held()
        sent = self._clock.monotonic()
        deaf = sent - self._heard
        obeyed = self._obeyed
        vitals = self._pulse.vitals()
        tickets = self._tickets
        beat = Heartbeat(
            self._registration.id,
            vitals,
            held,
            deaf=deaf,
            obeyed=obeyed,
            tickets=tickets,
            runs=self._some_runs(),
        )
        try:
            reply = await self._client.heartbeat(beat, seconds)
        except UnknownAgent:
            await self.register()
            return True
        except FINAL:
            raise
        except SkepError as error:
            self._lost_touch(error)
            return False
        self.beats += 1
        self.beaten.set()
        self._told = max(self._told, obeyed)
        self._tickets = self._tickets[len(tickets) :]
        self._in_touch()
        if not reply.known:
            await self.register()
        await self._pulse.answered(held, reply)
        # Only now: blocks that were taken back must have left the queue. A heartbeat after a
        # long silence renews nothing and reports no loss; the next one does.
        if deaf < self._grace():
            self._lived(sent)
        return True

    def _some_runs(self) -> list[str]:
        """The stored runs, a bounded number at a time, in turn."""
        names = self._pulse.runs()
        start = self._named if self._named < len(names) else 0
        self._named = start + HEARTBEAT_RUNS_MAX
        return names[start : self._named]

    def _lost_touch(self, error: SkepError) -> None:
        """Logs each kind of error once per outage: an agent without a center must not fill its disk
        with log lines."""
        if error.code not in self._troubles:
            log.warning("heartbeat failed (%s); retrying", error.detail)
        self._troubles.add(error.code)
        self.note_trouble(f"heartbeat failed: {error.detail}")

    def note_trouble(self, text: str) -> None:
        """Store a problem, which the center shows."""
        self._trouble = (text[:TROUBLE_LIMIT], self._clock.monotonic())

    @property
    def trouble(self) -> tuple[str, float]:
        """The latest problem, and its age in seconds; "" = none."""
        text, at = self._trouble
        return text, round(self._clock.monotonic() - at, 1) if text else 0.0

    def _in_touch(self) -> None:
        self._heard = self._clock.monotonic()
        if self._troubles:
            log.info("a center answers again: %s", self._client.address)
            self._troubles.clear()
            self._pulse.back()


def _answer_seconds(rules: Registered) -> float:
    """Seconds for the answer to a heartbeat. It leaves time for another one on a new connection
    before the agent counts as dead, and no less: a slow line would lose its connection, and a new
    handshake on it takes long."""
    most = rules.alive_after - rules.heartbeat_every - FENCE
    return max(rules.heartbeat_every + HEARTBEAT_MARGIN, most)
