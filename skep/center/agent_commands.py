"""Commands to agents, over the WebSocket that each agent keeps open to one of the centers.

A command for an agent that is connected to another center goes over the bus. A command for an
agent without a connection is queued, limited in number and in time, and sent with the reply
to its next heartbeat. A command is about the present: one that is not fetched in time is
dropped, so that an agent that connects a day later gets no outdated wake-up. Drain, restart
and exit are never queued here: they are rows of the store, and every heartbeat reply repeats
the open ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable

import msgspec
from starlette.websockets import WebSocketDisconnect

from skep.bus.ports import Bus
from skep.errors import BusDown
from skep.runtime.clock import Clock
from skep.wire.messages import Command

CHANNEL = "commands"
WORK = "work"
#: Number of commands that are queued for one agent, and for how many seconds.
RESTING = 100
RESTING_SECONDS = 60.0

Send = Callable[[bytes], Awaitable[None]]


class Addressed(msgspec.Struct):
    """A command on its way between centers."""

    agent: str
    command: Command
    #: The center that sent it, and that has processed it already.
    origin: str = ""


class Hub:
    """Knows which agents are connected to this center."""

    def __init__(self, bus: Bus, clock: Clock, center: str) -> None:
        self._bus = bus
        self._clock = clock
        self._center = center
        self._connected: dict[str, Send] = {}
        self._resting: dict[str, deque[tuple[float, Command]]] = {}

    def connect(self, agent: str, send: Send) -> None:
        """Add a connection; a second one of the same agent replaces the first."""
        self._connected[agent] = send

    def disconnect(self, agent: str, send: Send) -> None:
        if self._connected.get(agent) == send:
            del self._connected[agent]

    def has(self, agent: str) -> bool:
        """Whether the agent is connected to this center."""
        return agent in self._connected

    @property
    def connected(self) -> list[str]:
        return list(self._connected)

    async def send(self, agent: str, command: Command) -> None:
        """Send a command to the agent, over any center that it is connected to."""
        if await self.deliver(agent, command):
            return
        if not command.order:
            self._rest(agent, command)
        try:
            message = msgspec.msgpack.encode(Addressed(agent, command, self._center))
            await self._bus.signals.publish(CHANNEL, message)
        except BusDown:
            return

    async def hear(self, message: Addressed) -> None:
        """Process a command from another center for an agent that is, or may be, connected here."""
        if message.origin == self._center:
            return
        if not await self.deliver(message.agent, message.command) and not message.command.order:
            self._rest(message.agent, message.command)

    def _rest(self, agent: str, command: Command) -> None:
        self._forget_old()
        queue = self._resting.setdefault(agent, deque(maxlen=RESTING))
        queue.append((self._clock.monotonic(), command))

    def _forget_old(self) -> None:
        oldest = self._clock.monotonic() - RESTING_SECONDS
        for agent in [a for a, queue in self._resting.items() if queue[-1][0] < oldest]:
            del self._resting[agent]

    async def deliver(self, agent: str, command: Command) -> bool:
        """Return True when the agent is connected here and the command was sent."""
        send = self._connected.get(agent)
        if send is None:
            return False
        try:
            await send(msgspec.msgpack.encode(command))
        except (TimeoutError, RuntimeError, OSError, WebSocketDisconnect):
            self.disconnect(agent, send)
            return False
        return True

    def resting(self, agent: str) -> list[Command]:
        """Commands to send with the next heartbeat reply."""
        oldest = self._clock.monotonic() - RESTING_SECONDS
        return [command for at, command in self._resting.pop(agent, ()) if at >= oldest]
