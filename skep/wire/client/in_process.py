"""Calls into the application of a center in the same process, with the caller's credential.

Answers, errors, roles and masking are those of HTTP: the whole application is called, as plain
ASGI, and only the network is left out. It never calls another center.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar
from urllib.parse import unquote

from skep.errors import CenterUnreachable
from skep.wire.api.caller import Download
from skep.wire.client.transport import Answer, Request
from skep.wire.messages import BODIES_HEADER, ENCODED, PROTOCOL, PROTOCOL_HEADER
from skep.wire.problem import error_from

T = TypeVar("T")
Message = MutableMapping[str, Any]
Application = Callable[
    [
        MutableMapping[str, Any],
        Callable[[], Awaitable[Message]],
        Callable[[Message], Awaitable[None]],
    ],
    Awaitable[None],
]

#: A host name that every center accepts.
HOST = "localhost"
#: Maximum unread parts of an answer.
BUFFERED = 4


def _unheard(_headers: Mapping[str, str]) -> None:
    """For callers that need no headers."""


class InProcessTransport:
    """Calls `app`. `token` is that of the caller, and `origin` the address it calls from.

    A page of the portal calls for the user who asks: `cookie` is the Cookie header and `scheme`
    that of the URL in the browser. The page has checked that a changing call comes from itself.
    `headers` are sent with every call; `heard` gets the headers of every complete answer, such as
    the cookie of a new session.
    """

    def __init__(
        self,
        app: Application,
        token: str,
        origin: str = "127.0.0.1",
        *,
        cookie: str = "",
        scheme: str = "http",
        headers: Mapping[str, str] | None = None,
        heard: Callable[[Mapping[str, str]], None] = _unheard,
    ) -> None:
        self._app = app
        self._token = token
        self._origin = origin
        self._cookie = cookie
        self._scheme = scheme
        self._headers = headers or {}
        self._heard = heard

    async def send(self, request: Request, read: Callable[[Answer], T]) -> T:
        try:
            async with asyncio.timeout(request.seconds), self._answering(request) as exchange:
                content = b"".join([piece async for piece in exchange.pieces()])
        except TimeoutError as error:
            raise _silent(request) from error
        self._heard(exchange.headers)
        return read(Answer(request.path, exchange.status, exchange.content_type, content))

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Download]:
        async with self._answering(request) as exchange:
            yield Download(exchange.content_type, exchange.headers, exchange.pieces())

    @asynccontextmanager
    async def _answering(self, request: Request) -> AsyncIterator[_Exchange]:
        """Runs until the head of the answer has arrived, and while its body does."""
        exchange = _Exchange(request)
        task = asyncio.create_task(exchange.run(self._app, self._scope(request)))
        try:
            await exchange.begun()
            if not request.accepts(exchange.status):
                content = b"".join([piece async for piece in exchange.pieces()])
                raise error_from(exchange.status, exchange.content_type, content)
            yield exchange
        finally:
            exchange.gone = True
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _scope(self, request: Request) -> dict[str, Any]:
        path, _, query = request.path.partition("?")
        headers = {"host": HOST, PROTOCOL_HEADER: str(PROTOCOL), BODIES_HEADER: ENCODED}
        headers |= self._headers
        if self._token:
            headers["authorization"] = f"Bearer {self._token}"
        if self._cookie:
            headers |= {"cookie": self._cookie, "sec-fetch-site": "same-origin"}
        sent = {name.lower(): value for name, value in {**headers, **request.headers}.items()}
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "1.1",
            "method": request.method,
            "scheme": self._scheme,
            "path": unquote(path),
            "raw_path": path.encode(),
            "root_path": "",
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode("latin-1")) for name, value in sent.items()],
            "client": (self._origin, 0),
            "server": (HOST, 0),
        }


class _Exchange:
    """One call of the application: its input and its answer."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._asked = False
        self._said: asyncio.Queue[Message | None] = asyncio.Queue(BUFFERED)
        #: The reader has stopped.
        self.gone = False
        self.status = 0
        self.headers: dict[str, str] = {}

    @property
    def content_type(self) -> str:
        return self.headers.get("content-type", "")

    async def run(self, app: Application, scope: MutableMapping[str, Any]) -> None:
        """Call the application, and signal its end, however it ends."""
        try:
            await app(scope, self._receive, self._send)
        finally:
            if not self.gone:
                await self._said.put(None)

    async def _receive(self) -> Message:
        if self._asked:
            await asyncio.Event().wait()  # the caller never disconnects
        self._asked = True
        return {"type": "http.request", "body": self._request.body or b"", "more_body": False}

    async def _send(self, message: Message) -> None:
        await self._said.put(message)

    async def begun(self) -> None:
        """Status and headers are known when it returns."""
        head = await self._next()
        self.status = head["status"]
        pairs = [(name.decode(), value.decode("latin-1")) for name, value in head["headers"]]
        self.headers = {name.lower(): value for name, value in pairs}

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body, as it is produced."""
        more = True
        while more:
            message = await self._next()
            more = message.get("more_body", False)
            if message.get("body"):
                yield message["body"]

    async def _next(self) -> Message:
        """Raises CenterUnreachable when no message arrives in time, or none can."""
        try:
            async with asyncio.timeout(self._request.seconds):
                message = await self._said.get()
        except TimeoutError as error:
            raise _silent(self._request) from error
        if message is None:
            raise CenterUnreachable(f"the center aborted its answer to {self._request.path}")
        return message


def _silent(request: Request) -> CenterUnreachable:
    return CenterUnreachable(
        f"the center did not answer {request.method} {request.path} within {request.seconds:g} s"
    )
