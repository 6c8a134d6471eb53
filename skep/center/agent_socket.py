"""The WebSocket of an agent: commands go down, nothing of weight comes up. Centers only.

One watchman per center looks whether those who listen still may: a task and a timer for
each of them would cost more than everything that is ever told to them.
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
#: Seconds between two looks at the tokens of connections that stay open.
LOOK_AGAIN = 1.0
#: Looks after which the other calls of the center get their turn.
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
    """One connection, and what it showed when it was made."""

    def __init__(self, services: Services, socket: WebSocket) -> None:
        self._services = services
        self.socket = socket
        self.agent = socket.query_params.get("agent", "")
        self._origin = socket.client.host if socket.client else ""
        self._token = socket.headers.get("authorization", "")
        self._headers = socket.headers
        #: Done when it may not listen any more, with the reason, or when we let go ("").
        self.over: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def check(self) -> None:
        """Raises what a call of that agent would get."""
        who = await self._services.auth.identify(self._token, Role.AGENT, "", self._origin)
        check_caller(self._services, who, self.agent, session_in(self._headers))

    def end(self, reason: str) -> None:
        if not self.over.done():
            self.over.set_result(reason)


class SocketWatch:
    """Everybody who listens here. Its task lives while there is somebody."""

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
                log.exception("whether %s may listen was not found out", listener.agent)
            if number % LOOKS_AT_ONCE == 0:
                await asyncio.sleep(0)

    async def _let_go(self) -> None:
        await self._services.closing.wait()
        for listener in self._listeners:
            listener.end("")


async def _until_gone(services: Services, listener: Listener) -> None:
    """Until it hangs up, we do, or it may not listen any more."""
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
