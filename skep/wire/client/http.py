"""Calls to centers over HTTP, for agents, commands and spiders.

It knows several addresses of the same cluster: a call that meets a dead or failing center moves
to the next one, and raises only after each was tried once. It never retries beyond that: the
caller decides how often, and what to do meanwhile.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from io import BytesIO
from typing import TypeVar

from skep import __version__
from skep.errors import CenterUnreachable, InvalidInput
from skep.runtime.lazy_certificates import aiohttp
from skep.wire import codec
from skep.wire.api.caller import Download
from skep.wire.client.addresses import NETWORK_ERRORS, Addresses, words
from skep.wire.client.transport import Answer, Request
from skep.wire.messages import (
    BODIES_HEADER,
    ENCODED,
    PROTOCOL,
    PROTOCOL_HEADER,
    SESSION_HEADER,
)
from skep.wire.problem import error_from

T = TypeVar("T")

CONNECT_SECONDS = 5.0
#: Less than the five seconds after which common servers close an idle connection.
KEEPALIVE_SECONDS = 4.0
#: Maximum answer that is read as a whole.
ANSWER_LIMIT = 256 * 2**20
#: Piece size of files and large bodies.
PIECE = 1024 * 1024


class HttpTransport:
    """Connections to the centers of one cluster. Close it at the end."""

    def __init__(
        self, urls: Sequence[str], token: str, moved: Callable[[], None] = lambda: None
    ) -> None:
        """`moved` is called when the client has left a silent center."""
        if not urls:
            raise InvalidInput("no center address was given")
        self.addresses = Addresses(urls, moved)
        self.token = token
        #: The session of the calling agent process; 0 = not known, or not an agent.
        self.agent_session = 0
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close every connection."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def send(self, request: Request, read: Callable[[Answer], T]) -> T:
        async def attempt(url: str) -> T:
            return read(await self.once(url, request))

        return await self.addresses.each(request.path, attempt)

    async def once(self, url: str, request: Request) -> Answer:
        """One attempt, at this URL only. Also raises the errors of aiohttp."""
        timeout = aiohttp.ClientTimeout(total=request.seconds, sock_connect=CONNECT_SECONDS)
        data = request.body
        # aiohttp would write raw bytes at once, which would block the event loop.
        body = BytesIO(data) if data and len(data) > PIECE else data
        async with self.session().request(
            request.method,
            url,
            data=body,
            headers={**request.headers, **self.agent_headers()},
            timeout=timeout,
            allow_redirects=False,
        ) as response:
            content = await _content(response)
            kind = response.headers.get("Content-Type", "")
            if not request.accepts(response.status):
                raise error_from(response.status, kind, content)
        return Answer(url, response.status, kind, content)

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Download]:
        async with AsyncExitStack() as stack:

            async def attempt(url: str) -> Download:
                return await stack.enter_async_context(self.opened(url, request))

            download = await self.addresses.each(request.path, attempt)
            pieces = _told(download.pieces, self.addresses.current)
            yield Download(download.content_type, download.headers, pieces)

    @asynccontextmanager
    async def opened(self, url: str, request: Request) -> AsyncIterator[Download]:
        """An answer from this URL only, as it arrives. Also raises the errors of aiohttp."""
        timeout = aiohttp.ClientTimeout(sock_connect=CONNECT_SECONDS, sock_read=request.seconds)
        plain = {"Accept-Encoding": "identity"}
        async with self.session().request(
            request.method,
            url,
            data=request.body,
            headers={**request.headers, **self.agent_headers(), **plain},
            timeout=timeout,
            allow_redirects=False,
        ) as response:
            kind = response.headers.get("Content-Type", "")
            if not request.accepts(response.status):
                raise error_from(response.status, kind, await _content(response))
            headers = {name.lower(): value for name, value in response.headers.items()}
            yield Download(kind, headers, response.content.iter_chunked(PIECE))

    def session(self) -> aiohttp.ClientSession:
        """Created inside the running loop, at the first call."""
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
        headers["User-Agent"] = f"skep/{__version__}"
        headers[BODIES_HEADER] = ENCODED
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        return headers

    def agent_headers(self) -> dict[str, str]:
        """The headers that identify the agent process."""
        return {SESSION_HEADER: str(self.agent_session)} if self.agent_session else {}


async def _content(response: aiohttp.ClientResponse) -> bytes:
    content = await response.read()
    encoding = response.headers.get("Content-Encoding", "")
    return codec.decompress(content, encoding, ANSWER_LIMIT)


async def _told(pieces: AsyncIterator[bytes], url: str) -> AsyncIterator[bytes]:
    """The same pieces; raises CenterUnreachable when the connection breaks between them."""
    try:
        async for piece in pieces:
            yield piece
    except NETWORK_ERRORS as error:
        raise CenterUnreachable(f"{url} stopped answering: {words(error)}") from error
