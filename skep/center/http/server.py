"""The HTTP server of a center: one socket, no signal handlers. Centers only.

The port is bound first, so that the number behind `port=0` is known and a port in use is an
error at once. It never listens on an address other than loopback without auth.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Iterator
from ipaddress import ip_network

import uvicorn

from skep.center.app import Center
from skep.center.http.connections.bounds import bounds_of
from skep.center.http.connections.register import Register
from skep.center.http.origin_check import is_loopback
from skep.errors import ConfigurationError
from skep.settings import CenterSettings

#: Seconds that active calls have to end when the server stops.
GRACE = 5
#: Seconds between two checks whether they have ended.
STEP = 0.005
#: Seconds between pings to a connected agent, and for its answer: the center also closes a
#: half-open connection within 25 s.
PING_SECONDS = 12.0


class _Server(uvicorn.Server):
    """The program that runs the center handles signals, not its server. It stops at once on
    `end`: uvicorn's own server checks only every tenth of a second."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._ending = asyncio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def end(self) -> None:
        """Ask the server to stop. Returns at once; `serve` ends soon after."""
        self.should_exit = True
        self._ending.set()

    async def main_loop(self) -> None:
        await self.on_tick(0)  # the headers of every answer
        await self._ending.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more calls; wait up to `GRACE` seconds for the active ones."""
        for server in self.servers:
            server.close()
        for one in sockets or []:
            one.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GRACE):
                while self.server_state.connections or self.server_state.tasks:  # noqa: ASYNC110 - uvicorn's sets
                    await asyncio.sleep(STEP)
        for task in self.server_state.tasks:
            task.cancel()


class CenterServer:
    """Serves one center until `stop`."""

    def __init__(self, center: Center, settings: CenterSettings) -> None:
        check_bind(settings)
        self._center = center
        self._settings = settings
        self._socket = _bind(settings.host, settings.port)
        self._server: _Server | None = None
        self._task: asyncio.Task[None] | None = None
        self._register = Register(bounds_of(settings), center.services.metrics.count_refused)
        self._watch: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """The URL of the center on this machine."""
        host, port = self._socket.getsockname()[:2]
        shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, host)  # noqa: S104 - shown
        return f"http://[{shown}]:{port}" if ":" in shown.strip("[]") else f"http://{shown}:{port}"

    async def start(self, prepare: Callable[[], Awaitable[None]] | None = None) -> None:
        """Open the center, await `prepare`, then accept calls."""
        # The address for the spiders of jobs, which are children of this process.
        self._center.services.address.url = self.url
        await self._center.open()
        if prepare is not None:
            await prepare()
        config = uvicorn.Config(
            self._center.app,
            loop="none",
            http=self._register.protocol(),
            ws="wsproto",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=bool(self._settings.trusted_proxies),
            forwarded_allow_ips=list(self._settings.trusted_proxies),
            timeout_keep_alive=75,
            ws_ping_interval=PING_SECONDS,
            ws_ping_timeout=PING_SECONDS,
        )
        self._server = _Server(config)
        self._task = asyncio.create_task(self._server.serve([self._socket]))
        self._watch = asyncio.create_task(self._register.watch())
        while not self._server.started and not self._task.done():  # noqa: ASYNC110 - uvicorn's way
            await asyncio.sleep(STEP)
        if self._task.done():
            await self._task

    async def stop(self) -> None:
        """Release waiting callers, stop the server, close the center."""
        self._center.release()
        if self._server is not None and self._task is not None:
            self._server.end()
            await self._task
        if self._watch is not None:
            self._watch.cancel()
        self._socket.close()
        await self._center.close()


def check_bind(settings: CenterSettings) -> None:
    """Raises ConfigurationError for a center that would accept calls from anyone."""
    if not settings.auth and not is_loopback(settings.host):
        raise ConfigurationError(
            f"refusing to listen on {settings.host} without auth; "
            "enable center.auth or bind to 127.0.0.1"
        )
    for proxy in settings.trusted_proxies:
        _check_proxy(proxy)


def _check_proxy(proxy: str) -> None:
    try:
        ip_network(proxy)
    except ValueError as error:
        raise ConfigurationError(
            f"center.trusted_proxies: {proxy!r} is not a valid address or network (10.0.0.0/8)"
        ) from error


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Connections inherit it. Head and body of an answer are two writes: without it the second
    # waits for the caller's delayed acknowledgement, 40 ms for each call.
    bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise ConfigurationError(
            f"cannot listen on {host}:{port}: {error.strerror}; choose another port with --port"
        ) from error
    return bound
