"""A session with a center: the calls of agents (msgpack), and calls by method and path (JSON).

`api` is the typed client of the public API, over the same transport. Calls move to another center
as described in `http.py`; none is retried beyond that.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import msgspec

from skep.errors import Malformed, TooLarge
from skep.runtime.backoff import Backoff
from skep.runtime.clock import Clock
from skep.runtime.lazy_certificates import aiohttp
from skep.runtime.retry import Pauses
from skep.wire import codec, messages
from skep.wire.api.caller import Download
from skep.wire.api.route import CALL_SECONDS
from skep.wire.client.addresses import NETWORK_ERRORS, words
from skep.wire.client.http import CONNECT_SECONDS, HttpTransport
from skep.wire.client.transport import Request

if TYPE_CHECKING:
    from skep.wire.client.answers_as_sent import Listener
    from skep.wire.client.api import CenterApi

log = logging.getLogger(__name__)

T = TypeVar("T")

#: Seconds for a whole call; a report can be large.
REPORT_SECONDS = 30.0
#: Seconds in addition to the wait of a long poll.
LEASE_MARGIN = 10.0
#: aiohttp pings after this many seconds of silence and gives up after half as many more, so a
#: half-open connection is detected after 24 s.
PING_SECONDS = 16.0
#: Seconds after which a command connection counts as successful.
STEADY_SECONDS = 30.0
RECONNECT = Backoff(first=0.5, cap=30.0)


class CenterClient:
    """One session to a center. `async with` it, or `close` it at the end."""

    def __init__(
        self,
        urls: Sequence[str],
        token: str,
        clock: Clock,
        rng: Random,
        listener: Listener | None = None,
    ) -> None:
        """`listener` is given each answer that `api` reads."""
        self.transport = HttpTransport(urls, token, self._moved)
        self._clock = clock
        self._rng = rng
        self._listener = listener
        #: The connection for commands, while there is one.
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._closing: asyncio.Future[bool] | None = None

    @property
    def agent_session(self) -> int:
        """The session of the calling agent process; 0 = not known, or not an agent."""
        return self.transport.agent_session

    @agent_session.setter
    def agent_session(self, number: int) -> None:
        self.transport.agent_session = number

    @property
    def api(self) -> CenterApi:
        """Every route of the public API."""
        return self.api_within(None)

    def api_within(self, seconds: float | None) -> CenterApi:
        """The same; each call may take `seconds` instead of the time limit of its route."""
        from skep.wire.client.answers_as_sent import ListenedTransport
        from skep.wire.client.api import CenterApi  # agents need neither

        if self._listener is None:
            return CenterApi(self.transport, seconds)
        return CenterApi(ListenedTransport(self.transport, self._listener), seconds)

    @property
    def token(self) -> str:
        """For calls that are made in another way."""
        return self.transport.token

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection."""
        await self.transport.close()

    @property
    def address(self) -> str:
        """The address that the next call tries first."""
        return self.transport.addresses.current

    @property
    def alternatives(self) -> int:
        """Other addresses than the one in use."""
        return len(self.transport.addresses.urls) - 1

    async def register(self, message: messages.Register) -> messages.Registered:
        """Raises Unauthorized, OldProtocol, and the errors of every call."""
        attempt = self._aged("/node/register", message, messages.Registered, CALL_SECONDS)
        return await self.transport.addresses.each("/node/register", attempt)

    async def join(self, message: messages.Join) -> messages.Joined:
        """With a one-time token. Raises Unauthorized, Conflict, Forbidden, OldProtocol."""
        return await self._node("join", message, messages.Joined)

    async def heartbeat(
        self, message: messages.Heartbeat, seconds: float = CALL_SECONDS
    ) -> messages.HeartbeatReply:
        """Raises UnknownAgent when the agent has to register again. If the center is silent,
        another one is called; when that one answers, open calls move there."""
        attempt = self._aged("/node/heartbeat", message, messages.HeartbeatReply, seconds)
        return await self.transport.addresses.hedged("/node/heartbeat", attempt)

    async def lease(self, message: messages.LeaseAsk) -> messages.LeaseReply:
        """May take `message.wait` seconds."""
        return await self._node("lease", message, messages.LeaseReply, message.wait + LEASE_MARGIN)

    async def report(self, message: messages.Report) -> messages.ReportReply:
        """Durable when it returns. Frames are compressed already and sent as they are."""
        plain = any(block.frames for block in message.blocks)
        return await self._node("block", message, messages.ReportReply, REPORT_SECONDS, plain=plain)

    async def give_back(self, message: messages.GiveBack) -> messages.GivenBack:
        """Return unfinished blocks, which other agents get at once."""
        return await self._node("giveback", message, messages.GivenBack)

    async def apps(self, message: messages.AppsAsk) -> messages.AppsReply:
        """Report the agent's instances, and get their desired states."""
        return await self._node("apps", message, messages.AppsReply)

    async def app_log(self, message: messages.AppLog) -> messages.AppLogReply:
        """Durable when it returns. Raises StaleToken when the instance belongs to another agent."""
        return await self._node("app-log", message, messages.AppLogReply, REPORT_SECONDS)

    async def log_lines(self, message: messages.LogLines) -> messages.LogLinesReply:
        """What is answered as stored is durable."""
        return await self._node("logs", message, messages.LogLinesReply, REPORT_SECONDS)

    async def package(self, digest: str, file: Path, limit: int) -> None:
        """Download a package into a file; raises TooLarge over `limit` bytes. The caller checks the
        digest."""
        request = Request("GET", f"/node/packages/{digest}", seconds=REPORT_SECONDS)

        async def attempt(url: str) -> None:
            async with self.transport.opened(url, request) as download:
                await _save(download, file, limit)

        await self.transport.addresses.each(request.path, attempt)

    async def _node(
        self,
        name: str,
        message: Any,
        reply: type[T],
        seconds: float = CALL_SECONDS,
        *,
        plain: bool = False,
    ) -> T:
        return await self.packed(f"/node/{name}", message, reply, seconds, plain=plain)

    async def packed(
        self,
        path: str,
        message: Any,
        reply: type[T],
        seconds: float = CALL_SECONDS,
        *,
        plain: bool = False,
    ) -> T:
        """One POST with msgpack in both directions, compressed if worthwhile and not `plain`."""
        request = _packed(path, message, seconds, plain=plain)
        return await self.transport.send(request, lambda answer: answer.decoded(reply))

    async def call(
        self,
        method: str,
        path: str,
        body: Any,
        reply_type: type[T],
        *,
        headers: Mapping[str, str] | None = None,
        seconds: float = CALL_SECONDS,
    ) -> T:
        """One call of the public API, in JSON. Reply type `bytes` returns the raw answer."""
        sent = {"Accept": codec.JSON, **(headers or {})}
        data = None
        if body is not None:
            data = codec.encode(body, codec.JSON)
            sent["Content-Type"] = codec.JSON
        request = Request(method, path, data, sent, seconds)
        return await self.transport.send(request, lambda answer: answer.decoded(reply_type))

    def _aged(
        self,
        path: str,
        message: messages.Register | messages.Heartbeat,
        reply: type[T],
        seconds: float,
    ) -> Callable[[str], Awaitable[T]]:
        """Each attempt sends the current age of the message, by which a center judges it."""
        made = self._clock.monotonic() - message.age

        async def attempt(url: str) -> T:
            age = max(self._clock.monotonic() - made, 0.0)
            request = _packed(path, msgspec.structs.replace(message, age=age), seconds)
            return (await self.transport.once(url, request)).decoded(reply)

        return attempt

    def _moved(self) -> None:
        """The client has left a silent center: commands come from another one."""
        log.info("the center does not answer; continuing with %s", self.address)
        socket, self._socket = self._socket, None
        if socket is not None:
            self._closing = asyncio.ensure_future(socket.close())

    async def commands(self, agent: str) -> AsyncIterator[messages.Command]:
        """All commands that a center pushes to this agent, without end.

        It reconnects automatically, at another address if needed. Commands sent meanwhile are
        not lost: heartbeat answers repeat those that still matter.
        """
        addresses = self.transport.addresses
        urls = addresses.urls
        pauses, at = Pauses(RECONNECT, self._rng), addresses.at
        while True:
            began = self._clock.monotonic()
            url = f"{urls[at % len(urls)]}/node/commands"
            try:
                async with self.transport.session().ws_connect(
                    url,
                    params={"agent": agent},
                    headers=self.transport.agent_headers(),
                    heartbeat=PING_SECONDS,
                    timeout=aiohttp.ClientWSTimeout(ws_close=CONNECT_SECONDS),
                ) as socket:
                    self._socket = socket
                    async for message in socket:
                        if command := _command(message):
                            yield command
                    if self._socket is not socket:  # the client has left that center
                        at = addresses.at
            except NETWORK_ERRORS as error:
                log.debug("commands: %s: %s", url, words(error))
                at += 1
            # A connection that is closed right after it was opened counts as a failure too.
            if self._clock.monotonic() - began >= STEADY_SECONDS:
                pauses.succeeded()
            await self._clock.sleep(pauses.failed())


def _packed(path: str, message: Any, seconds: float, *, plain: bool = False) -> Request:
    """A message in msgpack, compressed if worthwhile and not `plain`."""
    data = codec.encode(message)
    data, encoding = (data, "") if plain else codec.compress(data)
    headers = {"Content-Type": codec.MSGPACK, "Accept": codec.MSGPACK}
    if encoding:
        headers["Content-Encoding"] = encoding
    return Request("POST", path, data, headers, seconds)


def _command(message: aiohttp.WSMessage) -> messages.Command | None:
    if message.type != aiohttp.WSMsgType.BINARY:
        return None
    try:
        return codec.decode(message.data, messages.Command)
    except Malformed as error:
        log.warning("commands: %s", error.detail)
        return None


async def _save(download: Download, file: Path, limit: int) -> None:
    size = 0
    with file.open("wb") as target:
        async for piece in download.pieces:
            size += len(piece)
            if size > limit:
                raise TooLarge(f"the package exceeds {limit} bytes")
            await asyncio.to_thread(target.write, piece)
