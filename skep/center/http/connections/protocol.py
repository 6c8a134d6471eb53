"""One HTTP connection: uvicorn's protocol, with limits on what arrives before it is answered.

Runs on the event loop of a center, once for every chunk that arrives, so it only counts and
compares; the `Register` checks deadlines for all connections together. The parser keeps an
incomplete header in memory without a callback, so bytes that lead to no callback are
counted, whatever they are (a header, a trailer, the extension of a chunk).
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from skep.access.login_attempts import network_of
from skep.center.http.connections.bounds import PIPELINED, Bounds, Refusal, Refusals

if TYPE_CHECKING:
    from asyncio import Transport

#: What a connection waits for: a request, the rest of a head, the rest of a body.
IDLE, HEAD, BODY = range(3)
#: Seconds that a caller has to read an answer that was sent before its body had ended.
LINGER = 5.0
#: Bytes of a header in addition to its name and its value.
HEADER_OVERHEAD = 4
#: Key of the connection in the scope of a call.
SCOPE_KEY = "skep.connection"


class _Refused(Exception):
    """Stops the parser."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.reason)
        self.refusal = refusal


class Connections(Protocol):
    """What a connection reports to the register of all connections."""

    def opened(self, connection: BoundedProtocol) -> None: ...

    def known(self, connection: BoundedProtocol) -> None:
        """The connection has authenticated."""

    def closed(self, connection: BoundedProtocol) -> None: ...

    def refused(self, reason: str) -> None: ...


class BoundedProtocol(HttpToolsProtocol):
    """`register`, `bounds` and `refusals` belong to the class: `Register.protocol` creates one."""

    register: ClassVar[Connections]
    bounds: ClassVar[Bounds]
    refusals: ClassVar[Refusals]

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.phase = HEAD
        #: Deadline of the phase, by the loop's clock.
        self.until = inf
        self.opened_at = self.loop.time()
        #: Network address of the caller; "" = not known.
        self.address = ""
        self.authenticated = False
        self._head_left = self.bounds.head_bytes
        self._headers_left = self.bounds.headers
        #: Bytes since the parser's last callback.
        self._unheard = 0
        self._heard = False
        self._stalled: tuple[int, float] | None = None

    # -- the connection

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.until = self.opened_at + self.bounds.head_seconds
        self.address = network_of(self.client[0]) if self.client else ""
        self.register.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.register.closed(self)
        self.until = inf
        super().connection_lost(exc)

    def handle_websocket_upgrade(self) -> None:
        self.register.closed(self)  # the WebSocket adds itself to the server's connections
        super().handle_websocket_upgrade()

    @property
    def answering(self) -> bool:
        """Whether a call is active."""
        return self.cycle is not None and not self.cycle.response_complete

    def has_token(self) -> None:
        """A call of this connection had a valid token."""
        if not self.authenticated:
            self.authenticated = True
            self.register.known(self)

    def refuse(self, refusal: Refusal) -> None:
        """Answer, unless an answer has begun, and close."""
        if self.transport.is_closing():
            return
        self.register.refused(refusal.reason)
        if not self.answering:
            self.transport.write(refusal.answer)
            self.transport.close()
        elif self.cycle.response_started or self.pipeline:
            self.transport.abort()
        else:
            # The call ends as if its caller had disconnected, and nothing is written after this.
            self.cycle.disconnected = True
            self.cycle.message_event.set()
            self.transport.write(refusal.answer)
            self.transport.close()

    def data_received(self, data: bytes) -> None:
        if self.phase == IDLE:
            self._begin_head()
        self._heard = False
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            if self._should_upgrade():
                self.handle_websocket_upgrade()
        except httptools.HttpParserError as error:
            cause = error.__context__
            refused = isinstance(cause, _Refused)
            self.refuse(cause.refusal if refused else self.refusals.garbage)  # type: ignore[union-attr]
        else:
            self._unheard = 0 if self._heard else self._unheard + len(data)
            if self._unheard > self.bounds.head_bytes:
                self.refuse(self.refusals.head)

    # -- callbacks of the parser

    def _begin_head(self) -> None:
        self.phase = HEAD
        self.until = self.loop.time() + self.bounds.head_seconds
        self._head_left = self.bounds.head_bytes
        self._headers_left = self.bounds.headers
        self._unheard = 0

    def on_message_begin(self) -> None:
        if self.phase != HEAD:  # pipelined after another request
            self._begin_head()
            self._heard = True
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self.url += url
        if len(self.url) > self.bounds.url_bytes:
            raise _Refused(self.refusals.url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_left -= len(name) + len(value) + HEADER_OVERHEAD
        self._headers_left -= 1
        if self._head_left < 0 or self._headers_left < 0:
            raise _Refused(self.refusals.head)
        if self.phase != HEAD:
            return  # a trailer is counted but belongs to no request
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        if len(self.pipeline) >= PIPELINED:
            raise _Refused(self.refusals.pipelined)
        self._heard = True
        self.phase = BODY
        self.until = self.loop.time() + self.bounds.body_seconds
        self.scope[SCOPE_KEY] = self  # type: ignore[literal-required]
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._heard = True
        if self.answering:
            self.until += len(body) / self.bounds.body_rate
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._heard = True
        self.phase = IDLE
        early = self.cycle is not None and self.cycle.response_complete
        self.until = self.loop.time() + self.timeout_keep_alive if early else inf
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """As in uvicorn, without a timer: the register closes idle connections."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        elif self.phase == IDLE:
            self.until = self.loop.time() + self.timeout_keep_alive
        elif self.phase == BODY:
            self.until = self.loop.time() + LINGER

    # -- time

    def look(self, now: float, pause: float) -> None:
        """Check the deadline of the phase; called every `pause` seconds."""
        if self.flow.read_paused:
            self.until += pause  # it waits for the center
        if now > self.until:
            self._too_late()
        elif self.flow.write_paused:
            self._look_at_answer(now)
        else:
            self._stalled = None

    def _too_late(self) -> None:
        if self.phase == HEAD and self.scope is not None:
            self.refuse(self.refusals.slow_head)
        elif self.phase == BODY and self.answering:
            self.refuse(self.refusals.slow_body)
        elif not self.transport.is_closing():
            if self.phase != IDLE:  # it sent nothing, or is answered already
                self.register.refused("silent")
            self.transport.close()

    def _look_at_answer(self, now: float) -> None:
        """Check the deadline of an answer: one that is not read stays in the center's memory."""
        left = self.transport.get_write_buffer_size()
        if self._stalled is None or left != self._stalled[0]:
            self._stalled = left, now
        elif now - self._stalled[1] > self.bounds.body_seconds:
            self.register.refused("unread")
            self.transport.abort()
