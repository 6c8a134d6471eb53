"""The WebSocket of an agent: commands go down, nothing of weight comes up. Centers only."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from starlette.websockets import WebSocket, WebSocketDisconnect

from skep.center.auth import Role, check_agent_id
from skep.center.http import check_protocol
from skep.center.services import Services
from skep.errors import SkepError
from skep.wire.messages import PROTOCOL_HEADER

#: Close code for "not allowed"; the reason says why.
REFUSED = 1008


def commands_socket(services: Services) -> Callable[[WebSocket], Awaitable[None]]:
    """The route's endpoint."""

    async def serve(socket: WebSocket) -> None:
        agent = socket.query_params.get("agent", "")
        try:
            check_protocol(socket.headers.get(PROTOCOL_HEADER, ""))
            who = await services.auth.identify(socket.headers.get("authorization", ""), Role.AGENT)
            check_agent_id(agent)
            who.may_be(agent)
        except SkepError as error:
            await socket.close(REFUSED, error.detail[:120])
            return
        await socket.accept()
        send = socket.send_bytes
        services.hub.connect(agent, send)
        try:
            await _until_gone(services, socket)
        finally:
            services.hub.disconnect(agent, send)

    return serve


async def _until_gone(services: Services, socket: WebSocket) -> None:
    closing = asyncio.create_task(services.closing.wait())
    gone = asyncio.create_task(_hear_nothing(socket))
    await asyncio.wait({closing, gone}, return_when=asyncio.FIRST_COMPLETED)
    closing.cancel()
    if gone.cancel():
        await socket.close(1001)


async def _hear_nothing(socket: WebSocket) -> None:
    try:
        while True:
            await socket.receive_bytes()
    except (WebSocketDisconnect, KeyError):
        return
