"""Commands to agents, over the WebSocket that each keeps open to one of the centers.

A command for an agent that is connected elsewhere goes over the bus; one for an agent
that is connected nowhere rests here, bounded, and is told with its next heartbeat.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable

import msgspec

from skep.bus.ports import Bus
from skep.errors import BusDown
from skep.wire.messages import Command

CHANNEL = "commands"
WORK = "work"
RESTING = 100

Send = Callable[[bytes], Awaitable[None]]


class Addressed(msgspec.Struct):
    """A command on its way between centers."""

    agent: str
    command: Command


class Hub:
    """Knows who is connected here."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._connected: dict[str, Send] = {}
        self._resting: dict[str, deque[Command]] = {}

    def connect(self, agent: str, send: Send) -> None:
        """A second connection of the same agent takes the first one's place."""
        self._connected[agent] = send

    def disconnect(self, agent: str, send: Send) -> None:
        if self._connected.get(agent) is send:
            del self._connected[agent]

    @property
    def connected(self) -> list[str]:
        return list(self._connected)

    async def send(self, agent: str, command: Command) -> None:
        """To the agent, wherever it is connected."""
        if await self.deliver(agent, command):
            return
        self._resting.setdefault(agent, deque(maxlen=RESTING)).append(command)
        try:
            message = msgspec.msgpack.encode(Addressed(agent, command))
            await self._bus.signals.publish(CHANNEL, message)
        except BusDown:
            return

    async def deliver(self, agent: str, command: Command) -> bool:
        """True when the agent is connected here and the command went out."""
        send = self._connected.get(agent)
        if send is None:
            return False
        try:
            await send(msgspec.msgpack.encode(command))
        except (TimeoutError, RuntimeError, OSError):
            self.disconnect(agent, send)
            return False
        return True

    def resting(self, agent: str) -> list[Command]:
        """Commands that the next heartbeat takes along."""
        return list(self._resting.pop(agent, ()))
