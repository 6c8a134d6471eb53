"""A double of the /node routes of a center: real HTTP on loopback, data in memory.

It has no store, no lanes and no archive. Tests use it to see exactly what an agent sends, and to
cause faults at exact moments (refusals, silence, a closed port).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec
from aiohttp import WSCloseCode, web

from skep.errors import OldProtocol, SkepError, Unauthorized
from skep.model.block import BlockReport, Held, Leased
from skep.model.fleet.agent import Registration
from skep.model.hosts.host import Pace, SiteNote
from skep.model.request import Outcome, Work
from skep.model.run import RunSettings
from skep.runtime.ids import new_secret
from skep.wire import codec, messages
from skep.wire.problem import PROBLEM, problem_of

BODY_LIMIT = 64 * 2**20
FOR_EVER = 3600.0
Answer = Callable[[bytes], Awaitable[msgspec.Struct]]


@dataclass
class _Block:
    """One block and its holder."""

    id: int
    run: str
    works: list[Work]
    token: int = 0
    agent: str = ""
    outcomes: dict[int, Outcome] = field(default_factory=dict)
    ended: bool = False


class CenterDouble:
    """Add work with `add`, read the reports, cause faults with the fault methods."""

    def __init__(self, heartbeat_every: float = 0.05) -> None:
        self.token = new_secret("double")
        self.heartbeat_every = heartbeat_every
        self.body_limit = BODY_LIMIT
        self.protocols: tuple[str, ...] = ("1",)
        self.runs: dict[str, RunSettings] = {}
        self.blocks: dict[int, _Block] = {}
        self.ready: deque[_Block] = deque()
        self.registrations: list[Registration] = []
        #: The age of each registration in seconds, as the agent reported it.
        self.registration_ages: list[float] = []
        self.beats: list[messages.Heartbeat] = []
        self.asks: list[messages.LeaseAsk] = []
        self.reports: list[messages.Report] = []
        self.returned: list[messages.GiveBack] = []
        self.bodies: dict[tuple[int, int], bytes] = {}
        #: Request ids in the order of their first outcome.
        self.stored: list[int] = []
        self.known = True
        #: Sent with every lease: the rate limits of hosts.
        self.sites: list[Pace] = []
        self.alive_after = 11.0
        #: Sent in every heartbeat reply from now on.
        self.lost: set[int] = set()
        #: Names of runs that have ended.
        self.over: set[str] = set()
        self.pushed: list[messages.Command] = []
        self._faults: dict[str, deque[SkepError]] = {}
        self._silent: set[str] = set()
        self._cut_off: list[str] = []
        self._sockets: list[web.WebSocketResponse] = []
        self._changed = asyncio.Event()
        self._runner: web.AppRunner | None = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    # Input of a test.

    def add(self, run: str, works: list[Work], settings: RunSettings | None = None) -> int:
        """Add one block of work; returns its id."""
        self.runs.setdefault(run, settings or RunSettings())
        block = _Block(len(self.blocks) + 1, run, works)
        self.blocks[block.id] = block
        self.ready.append(block)
        self._notify()
        return block.id

    async def push(self, command: messages.Command) -> None:
        """Send a command to every agent that listens."""
        for socket in self._sockets:
            await socket.send_bytes(codec.encode(command))

    # Faults.

    def fail(self, route: str, error: SkepError, times: int = 1) -> None:
        """The next calls of this route (`lease`, `block`, ...) fail with this error."""
        self._faults.setdefault(route, deque()).extend([error] * times)

    def heal(self, route: str) -> None:
        """End the failures of this route."""
        self._faults.pop(route, None)

    def lose_answer(self, route: str) -> None:
        """Execute the next call of this route, and cut its connection before the answer."""
        self._cut_off.append(route)

    def silence(self, *routes: str) -> None:
        """These routes accept calls and never answer, until `speak`."""
        self._silent.update(routes)

    def speak(self) -> None:
        """All routes answer again; calls that hang are aborted."""
        self._silent.clear()
        self._notify()

    async def down(self) -> None:
        """Close the port and every connection, as a killed process would."""
        if self._runner is not None:
            for socket in self._sockets:
                await socket.close(code=WSCloseCode.GOING_AWAY)
            self._notify()
            await self._runner.cleanup()
            self._runner = None

    async def up(self) -> None:
        """Listen on the same port as before."""
        app = web.Application(client_max_size=0)
        self.routes(app)
        self._runner = web.AppRunner(
            app, shutdown_timeout=0.1, access_log=None, auto_decompress=False
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True).start()
        self.port = self._runner.addresses[0][1]

    # Conditions for tests.

    async def until(self, condition: Callable[[], bool], seconds: float = 10.0) -> None:
        """Return when the condition is true; it is checked after every call."""
        async with asyncio.timeout(seconds):
            while not condition():
                await self._changed.wait()

    @property
    def open_requests(self) -> int:
        """Requests without an outcome."""
        return sum(len(block.works) - len(block.outcomes) for block in self.blocks.values())

    def outcomes(self) -> Iterable[Outcome]:
        """Every stored outcome."""
        return (outcome for block in self.blocks.values() for outcome in block.outcomes.values())

    def notes(self) -> list[SiteNote]:
        """Every report about hosts, in order."""
        return [note for report in self.reports for b in report.blocks for note in b.sites]

    def _notify(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    # Routes.

    def routes(self, app: web.Application) -> None:
        """All routes; subclasses add to them."""
        for name in ("register", "heartbeat", "lease", "block", "giveback"):
            app.router.add_post(f"/node/{name}", self._route(name, getattr(self, f"_{name}")))
        app.router.add_get("/node/commands", self._commands)

    def _route(self, name: str, answer: Answer) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def handle(request: web.Request) -> web.Response:
            try:
                self._check(request)
                data = await request.read()
                encoding = request.headers.get("Content-Encoding", "")
                if faults := self._faults.get(name):
                    raise faults.popleft()
                await self.until(lambda: name not in self._silent, FOR_EVER)
                reply = await answer(codec.decompress(data, encoding, self.body_limit))
            except SkepError as error:
                return _problem(error)
            finally:
                self._notify()
            if name in self._cut_off and request.transport is not None:
                self._cut_off.remove(name)
                request.transport.abort()
            return web.Response(body=codec.encode(reply), content_type=codec.MSGPACK)

        return handle

    def _check(self, request: web.Request) -> None:
        if request.headers.get("Authorization") != f"Bearer {self.token}":
            raise Unauthorized("this center does not know the token; create one with `skep token`")
        protocol = request.headers.get(messages.PROTOCOL_HEADER, "")
        if protocol not in self.protocols:
            raise OldProtocol(f"protocol {protocol} is not supported; upgrade the agent")

    async def _register(self, data: bytes) -> messages.Registered:
        message = codec.decode(data, messages.Register)
        self.registrations.append(message.registration)
        self.registration_ages.append(message.age)
        self.known = True
        kept = {held.block for held in message.holding}
        for block in self.blocks.values():
            if block.agent == message.registration.id and block.id not in kept:
                self._take_back(block)
        rules = messages.Registered(self.heartbeat_every, 30.0, "double", "0", self.alive_after)
        return msgspec.structs.replace(rules, key=b"k" * 32)

    async def _heartbeat(self, data: bytes) -> messages.HeartbeatReply:
        beat = codec.decode(data, messages.Heartbeat)
        self.beats.append(beat)
        lost = [held.block for held in beat.holding if held.block in self.lost]
        commands, self.pushed = self.pushed, []
        over = [run for run in beat.runs if run in self.over]
        return messages.HeartbeatReply(commands, lost, known=self.known, released=over)

    async def _lease(self, data: bytes) -> messages.LeaseReply:
        ask = codec.decode(data, messages.LeaseAsk)
        self.asks.append(ask)
        self._notify()
        with suppress(TimeoutError):
            await self.until(lambda: bool(self.ready) or self._runner is None, ask.wait)
        taken = [self.ready.popleft() for _ in range(min(ask.want, len(self.ready)))]
        blocks = [self._hand_out(block, ask.agent) for block in taken]
        runs = {b.run: self.runs[b.run] for b in blocks if b.run in self.runs}
        return messages.LeaseReply(blocks, runs, self.sites if blocks else [])

    def _hand_out(self, block: _Block, agent: str) -> Leased:
        block.token += 1
        block.agent = agent
        body = msgspec.msgpack.encode(block.works)
        size = len(block.works)
        return Leased(block.id, block.token, block.run, size, body, list(block.outcomes))

    async def _block(self, data: bytes) -> messages.ReportReply:
        report = codec.decode(data, messages.Report)
        self.reports.append(report)
        return messages.ReportReply(
            [messages.BlockVerdict(b.block, self._settle(b)) for b in report.blocks]
        )

    def _settle(self, report: BlockReport) -> str:
        block = self.blocks.get(report.block)
        if block is None:
            return "unknown"
        if block.token != report.token:
            return "stale"
        if block.ended:
            return "duplicate"
        fresh = [one for one in report.outcomes if one.id not in block.outcomes]
        for outcome in fresh:
            block.outcomes[outcome.id] = outcome
            self.stored.append(outcome.id)
            frame = report.frames[outcome.offset : outcome.offset + outcome.length]
            self.bodies[block.id, outcome.id] = frame
        block.ended = report.final
        block.agent = "" if block.ended else block.agent
        return "stored" if fresh or report.final else "duplicate"

    async def _giveback(self, data: bytes) -> messages.GivenBack:
        message = codec.decode(data, messages.GiveBack)
        self.returned.append(message)
        taken = [block for held in message.blocks if (block := self._held_by(held))]
        for block in taken:
            self._take_back(block)
        return messages.GivenBack(len(taken))

    def _take_back(self, block: _Block) -> None:
        block.agent = ""
        if not block.ended:
            self.ready.append(block)

    def _held_by(self, held: Held) -> _Block | None:
        block = self.blocks.get(held.block)
        return block if block and block.token == held.token and not block.ended else None

    async def _commands(self, request: web.Request) -> web.StreamResponse:
        try:
            self._check(request)
        except SkepError as error:
            return _problem(error)
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        self._sockets.append(socket)
        self._notify()
        try:
            async for _ in socket:
                pass
        finally:
            self._sockets.remove(socket)
        return socket

    @property
    def listeners(self) -> int:
        """Agents that are connected for commands."""
        return len(self._sockets)


def _problem(error: SkepError) -> web.Response:
    problem = problem_of(error)
    return web.Response(
        status=error.status, body=msgspec.json.encode(problem), content_type=PROBLEM
    )


def center_double(heartbeat_every: float = 0.05) -> AbstractAsyncContextManager[CenterDouble]:
    """A double that listens until the end of the context."""
    return listening(CenterDouble(heartbeat_every=heartbeat_every))


D = TypeVar("D", bound=CenterDouble)


@asynccontextmanager
async def listening(double: D) -> AsyncIterator[D]:
    """This double while it listens."""
    await double.up()
    try:
        yield double
    finally:
        double.speak()
        await double.down()
