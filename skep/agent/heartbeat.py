"""Registers the agent and beats for ever, whatever happens to downloads and results.

Runs on the agent's event loop. A beat is never queued: one that could not be sent is
forgotten, and the next one tells how things are by then. A center that does not know the
agent (any more) gets its registration again.
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

#: At the first start these mean a mistake of whoever started the agent; later on they may
#: be a center's bad moment, and the agent waits for a better one.
FATAL = (Unauthorized, Forbidden, OldProtocol)
#: These are no bad moment of a center: it knows this agent, and that it is over. A center that
#: merely does not know the token says so with another error.
FINAL = (Fenced, Revoked)
#: Seconds for the last beat of an agent that was told to end.
LAST_WORD = 2.0
REGISTER = Backoff(first=0.5, cap=30.0)
#: Registrations of an agent whose session file was damaged, before it ends as fenced: about a
#: minute, several times what a center takes to notice that a process is gone.
PAST_TRIES = 7
#: Longest pause between tries while no center answers: below the time after which a center
#: that comes back would take the agent for dead. It is a beat at most, since no more callers
#: come back at once than a center hears anyway, and everything else waits for this.
HEARTBEAT_CAP = 10.0
#: What a beat may take beyond its interval, at least, before a new connection is tried.
HEARTBEAT_MARGIN = 1.0
#: Characters of a trouble that are told.
TROUBLE_LIMIT = 300
#: Tickets that wait for a beat; older ones are nobody's concern any more.
ACKNOWLEDGED_KEPT = 500
#: So long before a center may call us dead, nothing is asked any more of hosts that another
#: agent would get.
FENCE = 1.0


@dataclass(frozen=True, slots=True)
class HeartbeatHooks:
    """What the heart asks of the rest of the agent, and tells it."""

    vitals: Callable[[], Vitals]
    held: Callable[[], list[Held]]
    answered: Callable[[list[Held], HeartbeatReply], Awaitable[None]]
    back: Callable[[], None]
    #: Runs that are remembered, and what a center said when it took us.
    runs: Callable[[], list[str]] = list
    taken: Callable[[Registered], Awaitable[None]] | None = None


class HeartbeatLoop:
    """`register` first, then `run` beside everything else."""

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
        #: What went wrong since a center last answered, by code.
        self._troubles: set[str] = set()
        self._trouble = ("", 0.0)
        self._heard = clock.monotonic()
        #: When the last call was sent that a center took as a sign of life, and the first of
        #: those without too long a silence between them.
        self._sent = -inf
        self._alive_since = inf
        self.beats = 0
        #: Set with the first of them.
        self.beaten = asyncio.Event()
        #: How many of the runs that we remember the last beats have named.
        self._named = 0
        #: The newest order that was obeyed, and the newest that a center knows of.
        self._obeyed = 0
        self._told = 0
        #: Of commands that were obeyed and that no center knows of.
        self._tickets: list[str] = []

    def acknowledge(self, order: int) -> bool:
        """An order was obeyed; False when that is no news. The next beat says so, at once."""
        if order <= self._obeyed:
            return False
        self._obeyed = order
        self.send_now()
        return True

    def answer(self, ticket: str) -> None:
        """A command was obeyed, and somebody waits to hear so."""
        self._tickets = [*self._tickets[-ACKNOWLEDGED_KEPT:], ticket]
        self.send_now()

    def send_now(self) -> None:
        """Something happened that a center should hear before the next beat is due."""
        self._now.notify()

    def alive(self) -> bool:
        """Whether every center takes us for alive at this moment. False means that it cannot
        be known: what we hold may be in other hands by now."""
        return self._clock.monotonic() < self._sent + self._grace()

    @property
    def center_decodes(self) -> bool:
        """Whether the center decodes stored bodies: an older one hands them out as they are."""
        return self._known is not None and self._known.encoded_bodies

    def alive_since(self, moment: float) -> bool:
        """Alive, and without a silence since then in which what was ours could have gone to
        others. An answer to a call that was sent before such a silence is out of date."""
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
        """For ever, until a center takes it; raises what is `FATAL` at first start, Fenced when
        another process is this agent, and Revoked."""

        async def introduce() -> tuple[float, bool, Registered]:
            sent, held = self._clock.monotonic(), self._pulse.held()
            return sent, bool(held), await self._introduce(held)

        sent, holds, known = await retry(
            introduce, SkepError, self._after_refusal, self._clock.sleep
        )
        self._known = known
        if not holds:  # else the next beat tells what of it is still ours
            self._lived(sent)
        self._in_touch()
        if self._pulse.taken is not None:
            await self._pulse.taken(known)
        log.info("registered at %s as %s", self._client.address, self._registration.id)
        return known

    def _after_refusal(self, error: SkepError, failures: int) -> float | None:
        """The pause before the next registration; None when no other can succeed."""
        if isinstance(error, Fenced):
            final = not self._may_be_own_past(failures - 1)
        else:
            final = isinstance(error, FINAL) or (self._known is None and isinstance(error, FATAL))
        if final:
            return None
        self._lost_touch(error)
        return REGISTER.delay(failures, self._rng)

    def _may_be_own_past(self, attempt: int) -> bool:
        """Refused as an older copy, with a session file that was damaged: the other process may
        be this folder's last one, which the center takes for alive for some seconds more."""
        damage = self._session.damage
        if not damage or self._known is not None or attempt >= PAST_TRIES:
            return False
        if attempt == 0:
            log.warning("%s: waiting until the center has given up its last session", damage)
        return True

    async def _introduce(self, held: list[Held]) -> Registered:
        """With what we hold: whatever else a center thinks we have goes to others at once."""
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
        """The last word of a draining agent that hung up on a lease call: a block may have
        been on its way to us, and must not lie there until its lease runs out."""
        try:
            await self._introduce(self._pulse.held())
        except SkepError as error:
            log.debug("leave: %s", error.detail)

    async def final_heartbeat(self) -> None:
        """Of an agent that ends: an order that it has obeyed and no center knows of."""
        if self._obeyed > self._told:
            await self._send(LAST_WORD)

    async def run(self) -> None:
        """Beat for ever."""
        while True:
            rules = self._known or await self.register()
            began = self._clock.monotonic()
            pause = rules.heartbeat_every
            if not await self._send(_answer_seconds(rules)):
                longest = min(pause, HEARTBEAT_CAP)
                pause = Backoff(longest, longest).delay(1, self._rng)
            # A try that took long was pause enough, whatever became of it.
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
        # Not before: what was taken from us must have left the gate by now. A beat after a
        # long silence renews nothing and tells of no loss; the next one does.
        if deaf < self._grace():
            self._lived(sent)
        return True

    def _some_runs(self) -> list[str]:
        """The runs that we remember, a bounded number at a time, in turn."""
        names = self._pulse.runs()
        start = self._named if self._named < len(names) else 0
        self._named = start + HEARTBEAT_RUNS_MAX
        return names[start : self._named]

    def _lost_touch(self, error: SkepError) -> None:
        """Each kind is said once per outage: an agent at home must not fill its disk with log
        lines."""
        if error.code not in self._troubles:
            log.warning("heartbeat failed (%s); retrying", error.detail)
        self._troubles.add(error.code)
        self.note_trouble(f"heartbeat failed: {error.detail}")

    def note_trouble(self, text: str) -> None:
        """For people, who look at the agent from the center's side."""
        self._trouble = (text[:TROUBLE_LIMIT], self._clock.monotonic())

    @property
    def trouble(self) -> tuple[str, float]:
        """The newest, and how many seconds ago; "" when there was none."""
        text, at = self._trouble
        return text, round(self._clock.monotonic() - at, 1) if text else 0.0

    def _in_touch(self) -> None:
        self._heard = self._clock.monotonic()
        if self._troubles:
            log.info("a center answers again: %s", self._client.address)
            self._troubles.clear()
            self._pulse.back()


def _answer_seconds(rules: Registered) -> float:
    """Seconds for the answer to a beat. As many as leave time for another one on a new
    connection before we are taken for dead, and no fewer: a line that is only slow would lose
    its connection, and nobody can shake hands on it in a hurry."""
    most = rules.alive_after - rules.heartbeat_every - FENCE
    return max(rules.heartbeat_every + HEARTBEAT_MARGIN, most)
