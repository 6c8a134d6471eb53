"""The WebSocket of an agent: the center sends commands, and ignores what the agent sends.

Centers only. One task per center checks whether connected agents are still allowed: a task
and a timer for each would cost more than all commands together.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect

from skep.center.http.agent_authentication import check_caller, session_in
from skep.center.http.asgi import check_protocol
from skep.center.http.authentication import Role
from skep.center.services import Services
from skep.errors import SkepError, Unavailable
from skep.wire.messages import PROTOCOL_HEADER

log = logging.getLogger(__name__)

#: Close code for "not allowed"; the reason says why.
REFUSED = 1008
GOING_AWAY = 1001
#: Seconds between two checks of the tokens of open connections.
LOOK_AGAIN = 1.0
#: Number of checks after which the task yields to other calls of the center.
LOOKS_AT_ONCE = 50


def commands_socket(services: Services) -> Callable[[WebSocket], Awaitable[None]]:
    """The route's endpoint."""
    watch = SocketWatch(services)

    async def serve(socket: WebSocket) -> None:
        listener = Listener(services, socket)
        try:
            check_protocol(socket.headers.get(PROTOCOL_HEADER, ""))
            await listener.check()
        except SkepError as error:
            await socket.close(REFUSED, error.detail[:120])
            return
        await socket.accept()
        send = socket.send_bytes
        services.hub.connect(listener.agent, send)
        watch.begin(listener)
        try:
            await _until_gone(services, listener)
        finally:
            watch.end(listener)
            services.hub.disconnect(listener.agent, send)

    return serve


class Listener:
    """One connection, and the credentials that it was opened with."""

    def __init__(self, services: Services, socket: WebSocket) -> None:
        self._services = services
        self.socket = socket
        self.agent = socket.query_params.get("agent", "")
        self._origin = socket.client.host if socket.client else ""
        self._token = socket.headers.get("authorization", "")
        self._headers = socket.headers
        #: Done with the reason when the agent is no longer allowed, or with "" when the center
        #: closes the connection.
        self.over: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def check(self) -> None:
        """Raises the error that a call of that agent would get."""
        who = await self._services.auth.identify(self._token, Role.AGENT, "", self._origin)
        check_caller(self._services, who, self.agent, session_in(self._headers))

    def end(self, reason: str) -> None:
        if not self.over.done():
            self.over.set_result(reason)


class SocketWatch:
    """All connected agents. Its task runs while there is at least one."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._listeners: dict[Listener, None] = {}
        self._task: asyncio.Task[None] | None = None

    def begin(self, listener: Listener) -> None:
        self._listeners[listener] = None
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._go_on())

    def end(self, listener: Listener) -> None:
        del self._listeners[listener]
        if not self._listeners and self._task is not None:
            self._task.cancel()
            self._task = None

    async def _go_on(self) -> None:
        closing = asyncio.create_task(self._let_go())
        try:
            while True:
                await self._services.clock.sleep(LOOK_AGAIN)
                await self._look()
        finally:
            closing.cancel()

    async def _look(self) -> None:
        for number, listener in enumerate(list(self._listeners), start=1):
            try:
                await listener.check()
            except Unavailable:
                continue
            except SkepError as error:
                listener.end(error.detail[:120])
            except Exception:
                log.exception("cannot check whether agent %s may stay connected", listener.agent)
            if number % LOOKS_AT_ONCE == 0:
                await asyncio.sleep(0)

    async def _let_go(self) -> None:
        await self._services.closing.wait()
        for listener in self._listeners:
            listener.end("")


async def _until_gone(services: Services, listener: Listener) -> None:
    """Wait until either side disconnects or the agent is no longer allowed."""
    if services.closing.is_set():
        listener.end("")
    gone = asyncio.create_task(_hear_nothing(listener.socket))
    ends: set[asyncio.Future[Any]] = {gone, listener.over}
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    if gone.cancel():
        reason = listener.over.result()
        await listener.socket.close(REFUSED if reason else GOING_AWAY, reason)


async def _hear_nothing(socket: WebSocket) -> None:
    try:
        while True:
            await socket.receive_bytes()
    except (WebSocketDisconnect, KeyError):
        return
