"""The typed client of a center, for agents (msgpack) and for the command line (JSON).

It knows several addresses of the same center or its siblings: a call that meets a dead or
failing one moves on to the next, and raises only after each was tried once. It never
retries by itself beyond that: how often, and what to do meanwhile, is its caller's matter.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any, Self, TypeVar, cast

import msgspec

from skep.errors import (
    CenterUnreachable,
    InvalidInput,
    Malformed,
    SkepError,
    TooLarge,
)
from skep.runtime.backoff import Backoff
from skep.runtime.clock import Clock
from skep.runtime.late_certificates import aiohttp
from skep.wire import codec
from skep.wire.addresses import NETWORK_ERRORS, Addresses, words
from skep.wire.messages import (
    BODIES_HEADER,
    ENCODED,
    PROTOCOL,
    PROTOCOL_HEADER,
    SESSION_HEADER,
    AppLog,
    AppLogReply,
    AppsAsk,
    AppsReply,
    Command,
    GiveBack,
    GivenBack,
    Heartbeat,
    HeartbeatReply,
    Join,
    Joined,
    LeaseAsk,
    LeaseReply,
    Register,
    Registered,
    Report,
    ReportReply,
)
from skep.wire.problem import error_from

log = logging.getLogger(__name__)

T = TypeVar("T")

#: Seconds for a whole call, its connection included; a report may be large.
CALL_SECONDS = 10.0
REPORT_SECONDS = 30.0
CONNECT_SECONDS = 5.0
#: Beyond what a long poll may wait.
LEASE_MARGIN = 10.0
#: aiohttp pings after this many seconds of silence and gives up after half as many more,
#: so a half-open connection is noticed after 24 s.
PING_SECONDS = 16.0
#: Below the five seconds after which common servers close an idle connection.
KEEPALIVE_SECONDS = 4.0
#: Largest answer that is read.
ANSWER_LIMIT = 256 * 2**20
#: Of files and large bodies, which travel piece by piece.
PIECE = 1024 * 1024
#: A command connection that lasted so long was a good one.
STEADY_SECONDS = 30.0
RECONNECT = Backoff(first=0.5, cap=30.0)


class CenterClient:
    """One session to a center. `async with` it, or `close` it at the end."""

    def __init__(self, urls: Sequence[str], token: str, clock: Clock, rng: Random) -> None:
        if not urls:
            raise InvalidInput("no address of a center was given")
        self._addresses = Addresses(urls, self._moved)
        self._token = token
        self._clock = clock
        self._rng = rng
        #: The connection for commands, while there is one.
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._closing: asyncio.Future[bool] | None = None
        self._session: aiohttp.ClientSession | None = None
        #: Which process of an agent calls here; 0 = not known, or no agent.
        self.agent_session = 0

    @property
    def token(self) -> str:
        """For calls that are made by other means."""
        return self._token

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
        """Let go of every connection."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    @property
    def address(self) -> str:
        """The address that the next call tries first."""
        return self._addresses.current

    @property
    def alternatives(self) -> int:
        """Other addresses than the one in use."""
        return len(self._addresses.urls) - 1

    async def register(self, message: Register) -> Registered:
        """Raises Unauthorized, OldProtocol, and what every call may raise."""
        attempt = self._aged(message, Registered, CALL_SECONDS)
        return await self._addresses.each("/node/register", attempt)

    async def join(self, message: Join) -> Joined:
        """With a one-time token. Raises Unauthorized, Conflict, Forbidden, OldProtocol."""
        return await self._node("join", message, Joined)

    async def heartbeat(self, message: Heartbeat, seconds: float = CALL_SECONDS) -> HeartbeatReply:
        """Raises UnknownAgent when the agent has to register again. Where the center is silent
        another one is asked; when that one answers, open calls move there."""
        attempt = self._aged(message, HeartbeatReply, seconds)
        return await self._addresses.hedged("/node/heartbeat", attempt)

    async def lease(self, message: LeaseAsk) -> LeaseReply:
        """May take `message.wait` seconds."""
        return await self._node("lease", message, LeaseReply, message.wait + LEASE_MARGIN)

    async def report(self, message: Report) -> ReportReply:
        """On disk when it returns. Frames are compressed already and go as they are."""
        plain = any(block.frames for block in message.blocks)
        return await self._node("block", message, ReportReply, REPORT_SECONDS, plain=plain)

    async def give_back(self, message: GiveBack) -> GivenBack:
        """Unfinished blocks go to others at once."""
        return await self._node("giveback", message, GivenBack)

    async def apps(self, message: AppsAsk) -> AppsReply:
        """What the agent's instances are, and what they shall be."""
        return await self._node("apps", message, AppsReply)

    async def app_log(self, message: AppLog) -> AppLogReply:
        """On disk when it returns. Raises StaleToken when the instance is another agent's."""
        return await self._node("app-log", message, AppLogReply, REPORT_SECONDS)

    async def package(self, digest: str, file: Path, limit: int) -> None:
        """The bytes of a package, into a file; raises TooLarge when they are over `limit`.
        Whether they are the right ones is for the caller to see."""

        async def attempt(url: str) -> None:
            sent = {**self._agent_headers(), "Accept-Encoding": "identity"}
            timeout = aiohttp.ClientTimeout(sock_connect=CONNECT_SECONDS, sock_read=REPORT_SECONDS)
            async with self._open_session().get(
                url, headers=sent, timeout=timeout, allow_redirects=False
            ) as response:
                if response.status >= 300:  # noqa: PLR2004  (everything beyond success)
                    kind = response.headers.get("Content-Type", "")
                    raise error_from(response.status, kind, await _content(response))
                await _save(response, file, limit)

        await self._addresses.each(f"/node/packages/{digest}", attempt)

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
        """One POST in msgpack both ways, compressed where it pays and is not `plain`."""
        data, headers = _packed(message, plain=plain)
        return await self._anywhere("POST", path, data, headers, reply, seconds)

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
        """One call of the public API, in JSON. `bytes` as reply type gives the raw answer."""
        sent = {"Accept": codec.JSON, **(headers or {})}
        data = None
        if body is not None:
            data = codec.encode(body, codec.JSON)
            sent["Content-Type"] = codec.JSON
        return await self._anywhere(method, path, data, sent, reply_type, seconds)

    async def start_seconds(self) -> float:
        """For a call that starts a run: the center may wait for agents before it answers."""
        try:
            told = await self.call("GET", "/version", None, dict)
        except SkepError:  # the call itself will say so
            return CALL_SECONDS
        return CALL_SECONDS + float(told.get("start_wait", 0.0))

    async def _anywhere(
        self,
        method: str,
        path: str,
        data: bytes | None,
        headers: Mapping[str, str],
        reply: type[T],
        seconds: float,
    ) -> T:
        attempt = self._attempt(method, data, headers, reply, seconds)
        return await self._addresses.each(path, attempt)

    def _attempt(
        self,
        method: str,
        data: bytes | None,
        headers: Mapping[str, str],
        reply: type[T],
        seconds: float,
    ) -> Callable[[str], Awaitable[T]]:
        async def attempt(url: str) -> T:
            sent = {**headers, **self._agent_headers()}
            return await self._once(method, url, data, sent, reply, seconds)

        return attempt

    def _aged(
        self, message: Register | Heartbeat, reply: type[T], seconds: float
    ) -> Callable[[str], Awaitable[T]]:
        """Each try says how old the message is by then: a center judges it by that (C10)."""
        made = self._clock.monotonic() - message.age

        async def attempt(url: str) -> T:
            age = max(self._clock.monotonic() - made, 0.0)
            data, headers = _packed(msgspec.structs.replace(message, age=age))
            sent = {**headers, **self._agent_headers()}
            return await self._once("POST", url, data, sent, reply, seconds)

        return attempt

    async def _once(
        self,
        method: str,
        url: str,
        data: bytes | None,
        headers: Mapping[str, str],
        reply: type[T],
        seconds: float,
    ) -> T:
        timeout = aiohttp.ClientTimeout(total=seconds, sock_connect=CONNECT_SECONDS)
        # aiohttp would write raw bytes in one go, and the event loop would wait for that.
        body = BytesIO(data) if data and len(data) > PIECE else data
        async with self._open_session().request(
            method, url, data=body, headers=headers, timeout=timeout, allow_redirects=False
        ) as response:
            content = await _content(response)
            kind = response.headers.get("Content-Type", "")
            if response.status >= 300:  # noqa: PLR2004  (everything beyond success)
                raise error_from(response.status, kind, content)
        return cast("T", content) if reply is bytes else _decoded(content, reply, kind, url)

    def _open_session(self) -> aiohttp.ClientSession:
        """Made inside the running loop, at the first call."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEPALIVE_SECONDS),
                headers=self._standing_headers(),
                auto_decompress=False,
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session

    def _standing_headers(self) -> dict[str, str]:
        headers = {PROTOCOL_HEADER: str(PROTOCOL), "Accept-Encoding": codec.ZSTD}
        headers[BODIES_HEADER] = ENCODED
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        return headers

    def _agent_headers(self) -> dict[str, str]:
        return {SESSION_HEADER: str(self.agent_session)} if self.agent_session else {}

    def _moved(self) -> None:
        """A silent center was left: commands come by way of another one."""
        log.info("the center does not answer; going on with %s", self.address)
        socket, self._socket = self._socket, None
        if socket is not None:
            self._closing = asyncio.ensure_future(socket.close())

    async def commands(self, agent: str) -> AsyncIterator[Command]:
        """Everything that a center pushes to this agent, for ever.

        It reconnects by itself, at another address if need be. While it is away commands
        are not lost for good: heartbeat answers repeat what still matters.
        """
        urls = self._addresses.urls
        failures, at = 0, self._addresses.at
        while True:
            began = self._clock.monotonic()
            url = f"{urls[at % len(urls)]}/node/commands"
            try:
                async with self._open_session().ws_connect(
                    url,
                    params={"agent": agent},
                    headers=self._agent_headers(),
                    heartbeat=PING_SECONDS,
                    timeout=aiohttp.ClientWSTimeout(ws_close=CONNECT_SECONDS),
                ) as socket:
                    self._socket = socket
                    async for message in socket:
                        if command := _command(message):
                            yield command
                    if self._socket is not socket:  # we left that center
                        at = self._addresses.at
            except NETWORK_ERRORS as error:
                log.debug("commands: %s: %s", url, words(error))
                at += 1
            # A connection that is closed as soon as it is made counts as a failure too.
            lasted = self._clock.monotonic() - began
            failures = 1 if lasted >= STEADY_SECONDS else failures + 1
            await self._clock.sleep(RECONNECT.delay(failures, self._rng))


def _packed(message: Any, *, plain: bool = False) -> tuple[bytes, dict[str, str]]:
    """A message in msgpack, compressed where it pays and it is not `plain`; its headers."""
    data = codec.encode(message)
    data, encoding = (data, "") if plain else codec.compress(data)
    headers = {"Content-Type": codec.MSGPACK, "Accept": codec.MSGPACK}
    if encoding:
        headers["Content-Encoding"] = encoding
    return data, headers


def _command(message: aiohttp.WSMessage) -> Command | None:
    if message.type != aiohttp.WSMsgType.BINARY:
        return None
    try:
        return codec.decode(message.data, Command)
    except Malformed as error:
        log.warning("commands: %s", error.detail)
        return None


async def _content(response: aiohttp.ClientResponse) -> bytes:
    content = await response.read()
    encoding = response.headers.get("Content-Encoding", "")
    return codec.decompress(content, encoding, ANSWER_LIMIT)


async def _save(response: aiohttp.ClientResponse, file: Path, limit: int) -> None:
    size = 0
    with file.open("wb") as target:
        async for piece in response.content.iter_chunked(PIECE):
            size += len(piece)
            if size > limit:
                raise TooLarge(f"the package is over {limit} bytes")
            await asyncio.to_thread(target.write, piece)


def _decoded(content: bytes, reply: type[T], kind: str, url: str) -> T:
    try:
        return codec.decode(content, reply, kind)
    except Malformed as error:
        raise CenterUnreachable(
            f"{url} answered something that is not Skep's ({error.detail}); is the address right?"
        ) from error
