"""A real center for tests and experiments: on a free port, in a given folder.

It runs in the caller's event loop, over real HTTP, with its own SQLite file. `Caller` calls it
directly, in JSON or as agents do; it never retries and never hides an answer.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import aiohttp
import msgspec

from skep.archive.frames import Exchange, FrameMaker
from skep.center.http.authentication import Role
from skep.center.services import Services
from skep.embed.embedded import LocalCenter
from skep.model.block import BlockReport, Held, Leased
from skep.model.fleet.agent import Registration, Vitals
from skep.model.ledger import Ledger
from skep.model.request import Outcome, Work
from skep.runtime.clock import SystemClock
from skep.settings import load
from skep.testing.grounds.isolation import code_setting
from skep.testing.grounds.record_checks import assert_whole
from skep.wire import codec, messages
from skep.wire.problem import PROBLEM, Problem

T = TypeVar("T")
CALL_SECONDS = 60.0


@dataclass(frozen=True)
class Answer:
    """The answer of a call, also an error."""

    status: int
    headers: Mapping[str, str]
    content: bytes

    def read(self, kind: type[T]) -> T:
        """A successful answer as its type; an error fails the test with its text."""
        assert self.status < 300, f"{self.status}: {self.content[:500]!r}"
        return codec.decode(self.content, kind, self.headers.get("Content-Type", ""))

    def json(self) -> Any:
        """A successful answer as plain data."""
        return self.read(object)

    def problem(self) -> Problem:
        """An error answer, in the form of all errors."""
        assert self.headers.get("Content-Type") == PROBLEM, (self.status, self.content[:500])
        problem = msgspec.json.decode(self.content, type=Problem)
        assert problem.status == self.status
        return problem


class Caller:
    """A caller with or without a token."""

    def __init__(self, session: aiohttp.ClientSession, url: str, token: str = "") -> None:
        self.url = url
        self.token = token
        self._session = session

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}

    async def send(
        self, method: str, path: str, data: Any = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """Send bytes unchanged (or an async iterator of them, in chunks)."""
        sent = {**self.headers, **(headers or {})}
        async with self._session.request(
            method, self.url + path, data=data, headers=sent, allow_redirects=False
        ) as response:
            content = await response.read()
            encoding = response.headers.get("Content-Encoding", "")
            content = codec.decompress(content, encoding, 2**28)
            return Answer(response.status, response.headers, content)

    async def get(self, path: str) -> Answer:
        return await self.send("GET", path)

    async def put(self, path: str, body: Any) -> Answer:
        return await self._json("PUT", path, body)

    async def post(self, path: str, body: Any = None) -> Answer:
        """Without a body if it is None."""
        return await self._json("POST", path, body)

    async def _json(self, method: str, path: str, body: Any) -> Answer:
        data = None if body is None else msgspec.json.encode(body)
        return await self.send(method, path, data, {"Content-Type": codec.JSON})

    async def packed(self, path: str, body: Any) -> Answer:
        """As agents do: msgpack both ways, zstd for large bodies."""
        data, encoding = codec.compress(codec.encode(body))
        headers = {
            "Content-Type": codec.MSGPACK,
            "Accept": codec.MSGPACK,
            "Accept-Encoding": codec.ZSTD,
        }
        if encoding:
            headers["Content-Encoding"] = encoding
        return await self.send("POST", path, data, headers)

    def socket(self, agent: str, headers: Mapping[str, str] | None = None) -> Any:
        """The commands of an agent: an async context manager for a WebSocket."""
        return self._session.ws_connect(
            f"{self.url}/node/commands",
            params={"agent": agent},
            headers={**self.headers, **(headers or {})},
        )


@dataclass
class HandAgent:
    """An agent without a downloader: the test decides the outcome of every request."""

    caller: Caller
    id: str = "a1"
    #: JSON instead of msgpack and zstd.
    plain: bool = False
    held: dict[int, Leased] = field(default_factory=dict)

    async def call(self, name: str, body: Any) -> Answer:
        send = self.caller.post if self.plain else self.caller.packed
        return await send(f"/node/{name}", body)

    async def register(self, holding: Sequence[Held] = (), **more: Any) -> messages.Registered:
        message = messages.Register(Registration(self.id, self.id), list(holding), **more)
        return (await self.call("register", message)).read(messages.Registered)

    async def heartbeat(
        self, want: int = 0, age: float = 0.0, vitals: Vitals | None = None, obeyed: int = 0
    ) -> Any:
        """With all its held blocks."""
        holding = [block.held for block in self.held.values()]
        message = messages.Heartbeat(self.id, vitals or Vitals(), holding, want, age, obeyed=obeyed)
        reply = (await self.call("heartbeat", message)).read(messages.HeartbeatReply)
        self._take(reply.lease.blocks if reply.lease else [])
        return reply

    async def lease(self, want: int = 1, wait: float = 0.0) -> list[Leased]:
        """Lease blocks, which it holds from now on."""
        reply = (await self.call("lease", messages.LeaseAsk(self.id, want, wait))).read(
            messages.LeaseReply
        )
        self._take(reply.blocks)
        return reply.blocks

    def _take(self, blocks: Sequence[Leased]) -> None:
        self.held.update({block.id: block for block in blocks})

    async def report(self, *reports: BlockReport) -> list[str]:
        """The verdicts, in order."""
        answer = await self.call("block", messages.Report(self.id, list(reports)))
        return [verdict.verdict for verdict in answer.read(messages.ReportReply).verdicts]

    async def finish(self, block: Leased, failure: str = "", status: int = 200) -> str:
        """End every request of a block in the same way."""
        outcomes = [Outcome(work.id, failure, status) for work in works_of(block)]
        self.held.pop(block.id, None)
        return (await self.report(BlockReport(block.id, block.token, outcomes)))[0]

    async def give_back(self, *blocks: Leased) -> int:
        message = messages.GiveBack(self.id, [block.held for block in blocks])
        return (await self.call("giveback", message)).read(messages.GivenBack).blocks


def works_of(block: Leased) -> list[Work]:
    """The open requests of a block."""
    works = msgspec.msgpack.decode(block.body, type=list[Work])
    return [work for work in works if work.id not in block.skip]


def archived(block: Leased) -> tuple[BlockReport, list[bytes]]:
    """A report with a record for each request, and their bodies."""
    maker = FrameMaker(SystemClock(), Random(block.id))  # noqa: S311 (a test repeats)
    frames, outcomes, bodies = b"", [], []
    for work in works_of(block):
        body = f"<p>page {work.uri} of block {block.id}</p>".encode() * 20
        headers = [("Content-Type", "text/html")]
        page = Exchange(work.uri, status=200, reason="OK", response_headers=headers, body=body)
        frame = maker.exchange_frames(page)
        outcomes.append(Outcome(work.id, "", 200, offset=len(frames), length=len(frame)))
        frames += frame
        bodies.append(body)
    return BlockReport(block.id, block.token, outcomes, frames=frames), bodies


class RunningCenter:
    """A running center, with a caller of each role."""

    def __init__(self, local: LocalCenter, session: aiohttp.ClientSession) -> None:
        self.local = local
        self._session = session
        self.url = local.url
        self.admin = Caller(session, self.url, local.admin_token)
        self.agent = Caller(session, self.url, local.agent_token)
        self.anyone = Caller(session, self.url)
        #: Set by a test that plants differences for the self-check.
        self.planted = False

    async def assert_whole(self) -> None:
        """Assert that nothing was repaired, unless the test planted a difference."""
        if not self.planted:
            await assert_whole(self.services)

    @property
    def services(self) -> Services:
        return self.local.center.services

    @property
    def folder(self) -> Path:
        return self.local.folder

    def hand_agent(self, name: str = "a1", *, plain: bool = False) -> HandAgent:
        return HandAgent(self.agent, name, plain)

    async def caller(self, role: Role, subject: str = "") -> Caller:
        """A caller with a new token of this role."""
        return Caller(self._session, self.url, await self.services.auth.issue(role, subject))

    async def open_run(self, name: str, **settings: Any) -> None:
        answer = await self.admin.put(f"/api/v1/runs/{name}", {"settings": settings})
        assert answer.status == 200, answer.content

    async def put(self, run: str, offered: Sequence[Any]) -> Any:
        """Add requests to a run: {"new": n, "known": n}."""
        return (await self.admin.post(f"/requestqueue/{run}", offered)).json()

    async def archive_pages(self, count: int, run: str = "r", agent: str = "a1") -> list[bytes]:
        """Create a run with this number of archived pages; returns their bodies."""
        await self.open_run(run, block_size=2)
        await self.put(run, [{"uri": f"http://a.test/{run}/{n}"} for n in range(count)])
        hand = self.hand_agent(agent)
        bodies: list[bytes] = []
        await hand.register()
        while len(bodies) < count:
            await self.dispatched()
            for block in await hand.lease(want=4):
                report, made = archived(block)
                assert await hand.report(report) == ["stored"]
                hand.held.pop(block.id)
                bodies += made
        return bodies

    async def dispatched(self) -> None:
        """Everything that waits and fits is in its lane when this returns."""
        while await self.services.dispatcher.dispatch():
            pass

    async def ledger(self, run: str | None = None) -> Ledger:
        """The current ledger; counted in two ways, which must agree."""
        ledgers = self.services.store.ledgers
        running = await ledgers.read(run)
        while True:
            # The dispatcher continues: only unchanged ledgers can be compared.
            before, counted = running, await ledgers.audit(run)
            running = await ledgers.read(run)
            if running == before:
                break
        assert counted == running, f"{counted.line()} is not {running.line()}"
        assert running.unaccounted == 0, running.line()
        return running

    async def metric(self, name: str) -> float:
        """A value of /metrics without labels."""
        text = (await self.anyone.get("/metrics")).content.decode()
        lines = [line.split() for line in text.splitlines() if line.startswith(f"{name} ")]
        assert lines, f"{name} is not in /metrics"
        return float(lines[0][1])


@asynccontextmanager
async def running_center(folder: Path, **flags: Any) -> AsyncIterator[RunningCenter]:
    """A center until the block ends; `flags` are settings, with `_` for the first dot
    (`lanes_super_limit=20`)."""
    dotted = {name.replace("_", ".", 1): value for name, value in flags.items()}
    code = {"jobs.code": code_setting(), "agent.code": code_setting()}
    settings = load(flags={"data": str(folder), "center.port": 0, **code, **dotted})
    local = LocalCenter(settings, SystemClock(), Random(7))  # noqa: S311 (a test repeats)
    timeout = aiohttp.ClientTimeout(total=CALL_SECONDS)
    await local.start()
    try:
        async with aiohttp.ClientSession(
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=timeout,
            skip_auto_headers=["Content-Type"],
        ) as session:
            running = RunningCenter(local, session)
            yield running
            await running.assert_whole()
    finally:
        await local.stop()


@asynccontextmanager
async def two_centers(
    folder: Path, shared: Mapping[str, str], **flags: Any
) -> AsyncIterator[tuple[RunningCenter, RunningCenter]]:
    """Two centers on the store and bus that `shared` names, as environment variables."""
    common = {name.removeprefix("SKEP_").lower(): value for name, value in shared.items()}
    async with (
        running_center(folder / "one", **common, **flags) as one,
        running_center(folder / "two", **common, **flags) as two,
    ):
        yield one, two
