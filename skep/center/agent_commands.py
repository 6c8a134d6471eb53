"""Commands to agents, over the WebSocket that each keeps open to one of the centers.

A command for an agent that is connected elsewhere goes over the bus; one for an agent
that is connected nowhere rests, bounded in number and in time, and is told with its next
heartbeat. A command is about the present: one that nobody fetched in time is dropped, or
an agent that moves here a day later would be told to wake. Orders (drain, restart, exit) do
not rest here: they are rows of the store, and every heartbeat's answer repeats open ones.
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
#: Commands that rest for one agent, and for how many seconds.
RESTING = 100
RESTING_SECONDS = 60.0

Send = Callable[[bytes], Awaitable[None]]


class Addressed(msgspec.Struct):
    """A command on its way between centers."""

    agent: str
    command: Command
    #: The center that sent it; it has done its part already.
    origin: str = ""


class Hub:
    """Knows who is connected here."""

    def __init__(self, bus: Bus, clock: Clock, center: str) -> None:
        self._bus = bus
        self._clock = clock
        self._center = center
        self._connected: dict[str, Send] = {}
        self._resting: dict[str, deque[tuple[float, Command]]] = {}

    def connect(self, agent: str, send: Send) -> None:
        """A second connection of the same agent takes the first one's place."""
        self._connected[agent] = send

    def disconnect(self, agent: str, send: Send) -> None:
        if self._connected.get(agent) == send:
            del self._connected[agent]

    def has(self, agent: str) -> bool:
        """Whether it is connected here."""
        return agent in self._connected

    @property
    def connected(self) -> list[str]:
        return list(self._connected)

    async def send(self, agent: str, command: Command) -> None:
        """To the agent, wherever it is connected."""
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
        """Another center has a command for an agent that may be, or may come, here."""
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
        """True when the agent is connected here and the command went out."""
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
        """Commands that the next heartbeat takes along."""
        oldest = self._clock.monotonic() - RESTING_SECONDS
        return [command for at, command in self._resting.pop(agent, ()) if at >= oldest]
