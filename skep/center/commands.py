"""The WebSocket of an agent: commands go down, nothing of weight comes up. Centers only."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from starlette.websockets import WebSocket, WebSocketDisconnect

from skep.center.auth import Role
from skep.center.door import check_caller, session_in
from skep.center.http import check_protocol
from skep.center.services import Services
from skep.errors import SkepError, Unavailable
from skep.wire.messages import PROTOCOL_HEADER

#: Close code for "not allowed"; the reason says why.
REFUSED = 1008
#: Seconds between two looks at the token of a connection that stays open.
LOOK_AGAIN = 1.0


def commands_socket(services: Services) -> Callable[[WebSocket], Awaitable[None]]:
    """The route's endpoint."""

    async def serve(socket: WebSocket) -> None:
        agent = socket.query_params.get("agent", "")
        try:
            check_protocol(socket.headers.get(PROTOCOL_HEADER, ""))
            await _may_listen(services, socket, agent)
        except SkepError as error:
            await socket.close(REFUSED, error.detail[:120])
            return
        await socket.accept()
        send = socket.send_bytes
        services.hub.connect(agent, send)
        try:
            await _until_gone(services, socket, agent)
        finally:
            services.hub.disconnect(agent, send)

    return serve


async def _may_listen(services: Services, socket: WebSocket, agent: str) -> None:
    """Raises what a call of that agent would get."""
    origin = socket.client.host if socket.client else ""
    token = socket.headers.get("authorization", "")
    who = await services.auth.identify(token, Role.AGENT, "", origin)
    check_caller(services, who, agent, session_in(socket.headers))


async def _until_gone(services: Services, socket: WebSocket, agent: str) -> None:
    """Until it hangs up, we do, or it may not listen any more."""
    closing = asyncio.create_task(services.closing.wait())
    gone = asyncio.create_task(_hear_nothing(socket))
    refused = asyncio.create_task(_refused(services, socket, agent))
    await asyncio.wait({closing, gone, refused}, return_when=asyncio.FIRST_COMPLETED)
    closing.cancel()
    reason = refused.result() if refused.done() else ""
    refused.cancel()
    if gone.cancel():
        await socket.close(REFUSED if reason else 1001, reason)


async def _refused(services: Services, socket: WebSocket, agent: str) -> str:
    """Looks again and again; returns why the agent may not listen any more."""
    while True:
        await services.clock.sleep(LOOK_AGAIN)
        try:
            await _may_listen(services, socket, agent)
        except Unavailable:
            continue
        except SkepError as error:
            return error.detail[:120]


async def _hear_nothing(socket: WebSocket) -> None:
    try:
        while True:
            await socket.receive_bytes()
    except (WebSocketDisconnect, KeyError):
        return
