"""The load of `fleet`: many simulated agents in one process. Reads a `Plan` as one line.

Each agent registers, keeps a WebSocket open, sends heartbeats, waits for work in a long poll, and
reports it after a short time. A feeder submits requests at a steady rate. It reports when the fleet
is complete and when the measurement ends, waits for a line of input each time, and prints its
figures at the end.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from random import Random

import msgspec
import uvloop

from bench.children.fleet_lines import Busy, CommandLine, HttpLine
from bench.figures import Wrong, percentile
from skep.model.block import BlockReport, Leased
from skep.model.fleet.agent import Registration, Vitals
from skep.model.request import Outcome, Work
from skep.wire import codec
from skep.wire.messages import (
    PROTOCOL,
    Heartbeat,
    HeartbeatReply,
    LeaseAsk,
    LeaseReply,
    Register,
    Registered,
    Report,
    ReportReply,
)

RUN = "fleet"
#: Seconds between two submissions; each has the requests of that time.
FEED_EVERY = 0.1
LEASE_WAIT = 20.0
#: Agents that register concurrently.
ARRIVALS = 20
_works = msgspec.msgpack.Decoder(list[Work])


class Plan(msgspec.Struct):
    """The settings of the parent process."""

    #: (host, port) of each center.
    centers: list[tuple[str, int]]
    #: Tokens of the agents, one each, and the token for submissions.
    tokens: list[str]
    admin: str
    seconds: float
    warm: float
    beat_every: float
    blocks_per_second: float
    block_size: int
    work_seconds: float


class Fleet:
    """All measurements. Samples are taken between `begin` and `end`."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.rng = Random(1)
        self.agents: list[SimAgent] = []
        self.measuring = False
        self.over = False
        self.beats: list[float] = []
        self.late: list[float] = []
        self.waits: list[float] = []
        self.reports: list[float] = []
        self.blocks = 0
        self.fenced = 0
        self.refused = 0
        self.fed = 0
        self.done = 0

    def note(self, samples: list[float], seconds: float) -> None:
        if self.measuring:
            samples.append(seconds)


class SimAgent:
    """One agent: three connections and two tasks, like a real one."""

    def __init__(self, fleet: Fleet, number: int) -> None:
        self.fleet = fleet
        self.id = f"sim-{number:05d}"
        self.place = fleet.plan.centers[number % len(fleet.plan.centers)]
        self._token = fleet.plan.tokens[number]
        self._holding: list[Leased] = []
        self._session = 0
        self.socket: CommandLine | None = None
        self._lines: list[HttpLine] = []

    def _headers(self) -> str:
        session = f"skep-session: {self._session}\r\n" if self._session else ""
        return (
            f"skep-protocol: {PROTOCOL}\r\nAuthorization: Bearer {self._token}\r\n"
            f"Accept: {codec.MSGPACK}\r\nAccept-Encoding: {codec.ZSTD}\r\n"
            f"Content-Type: {codec.MSGPACK}\r\n{session}"
        )

    async def arrive(self) -> None:
        """Register, then open the connections that stay open. Others are opened when something is
        sent on them, as in real agents: a center closes those without a token."""
        about = Registration(
            self.id, self.id, "sim", {"zone": "a"}, "", "Linux 6.1 x86_64", 2, 2**31, "0"
        )
        line = await HttpLine.open(*self.place, self._headers())
        answer = codec.decode(await _post(line, "register", Register(about)), Registered)
        line.close()
        self._session = answer.session
        self.socket = await CommandLine.open(
            *self.place, f"/node/commands?agent={self.id}", self._headers()
        )

    async def beat(self, first: float) -> None:
        """Send heartbeats on time, starting at `first`."""
        fleet, due = self.fleet, first
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        line = await self._open()
        while True:
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            vitals = Vitals(0.25, 2**30, 20, len(self._holding), 10.0, free_disk=2**34, load=0.5)
            holding = [block.held for block in self._holding]
            late, due = time.perf_counter() - due, due + fleet.plan.beat_every
            try:
                reply = await _post(line, "heartbeat", Heartbeat(self.id, vitals, holding))
            except Busy:
                fleet.refused += 1
                continue
            fleet.note(fleet.beats, line.answered_at - line.sent_at)
            fleet.note(fleet.late, late)
            if not codec.decode(reply, HeartbeatReply).known:
                raise Wrong(f"{self.id} is no longer known")

    async def work(self) -> None:
        """Wait for blocks, and report each after a short time."""
        line = await self._open()
        while True:
            try:
                reply = await _post(line, "lease", LeaseAsk(self.id, 1, LEASE_WAIT))
            except Busy:
                self.fleet.refused += 1
                await asyncio.sleep(self.fleet.rng.uniform(0.5, 1.0))
                continue
            for block in codec.decode(reply, LeaseReply).blocks:
                await self._do(line, block)

    async def _do(self, line: HttpLine, block: Leased) -> None:
        fleet, got_at = self.fleet, line.answered_at
        works = _works.decode(block.body)
        for work in works[:1]:
            fleet.note(fleet.waits, got_at - _submitted_at(work.uri))
        self._holding.append(block)
        await asyncio.sleep(fleet.plan.work_seconds * fleet.rng.uniform(0.5, 1.5))
        outcomes = [Outcome(work.id, status=200, elapsed_us=1000) for work in works]
        report = Report(self.id, [BlockReport(block.id, block.token, outcomes)])
        reply = codec.decode(await _post(line, "block", report), ReportReply)
        self._holding.remove(block)
        if reply.verdicts[0].verdict != "stored":
            # It counted as dead or was too slow: another agent has it now.
            fleet.fenced += 1
            return
        fleet.note(fleet.reports, line.answered_at - line.sent_at)
        fleet.blocks += fleet.measuring
        fleet.done += len(works)

    async def _open(self) -> HttpLine:
        line = await HttpLine.open(*self.place, self._headers())
        self._lines.append(line)
        return line

    def leave(self) -> None:
        for line in (self.socket, *self._lines):
            if line is not None:
                line.close()


async def _post(line: HttpLine, name: str, message: object) -> bytes:
    """Post as the real client does: msgpack, zstd for large bodies."""
    body, encoding = codec.compress(codec.encode(message))
    return await line.post(f"/node/{name}", body, "content-encoding: zstd\r\n" if encoding else "")


def _uri(number: int) -> str:
    """Loopback has no rate limit; the path contains the time of submission."""
    return f"http://127.0.0.1:9/{time.perf_counter():.6f}/{number}"


def _submitted_at(uri: str) -> float:
    return float(uri.split("/")[3])


async def feed(fleet: Fleet) -> None:
    """Submit requests for a number of blocks per second, to the centers alternately."""
    plan = fleet.plan
    headers = f"Authorization: Bearer {plan.admin}\r\nContent-Type: application/json\r\n"
    lines = [await HttpLine.open(*place, headers) for place in plan.centers]
    began, turn = time.perf_counter(), 0
    while not fleet.over:
        due = int((time.perf_counter() - began) * plan.blocks_per_second) * plan.block_size
        offered = [{"uri": _uri(number)} for number in range(fleet.fed, due)]
        if offered:
            line = lines[turn % len(lines)]
            await line.post(f"/requestqueue/{RUN}", json.dumps(offered).encode())
            fleet.fed = due
        turn += 1
        await asyncio.sleep(FEED_EVERY)
    for line in lines:
        line.close()


async def arrive_all(fleet: Fleet, tasks: asyncio.TaskGroup) -> list[asyncio.Task[None]]:
    """Register agents in small groups, as in a fleet that grows. Each sends heartbeats as soon as
    it is registered, or it would count as dead before the last has registered."""
    gate = asyncio.Semaphore(ARRIVALS)
    lives: list[asyncio.Task[None]] = []

    async def one(agent: SimAgent) -> None:
        async with gate:
            await agent.arrive()
        first = time.perf_counter() + fleet.rng.uniform(0.0, fleet.plan.beat_every)
        lives.append(tasks.create_task(agent.beat(first)))

    fleet.agents = [SimAgent(fleet, number) for number in range(len(fleet.plan.tokens))]
    await asyncio.gather(*(one(agent) for agent in fleet.agents))
    return lives


async def say_and_wait(word: str) -> None:
    """Print a word and wait: the parent reads its meters at this moment."""
    print(word, flush=True)
    await asyncio.to_thread(sys.stdin.readline)


async def measure(plan: Plan) -> dict[str, object]:
    fleet = Fleet(plan)
    began = time.perf_counter()
    async with asyncio.TaskGroup() as tasks:
        lives = await arrive_all(fleet, tasks)
        arrival = time.perf_counter() - began
        lives += [tasks.create_task(agent.work()) for agent in fleet.agents]
        feeder = tasks.create_task(feed(fleet))
        await asyncio.sleep(plan.warm)
        await say_and_wait("begin")
        fleet.measuring, cpu, wall = True, time.process_time(), time.perf_counter()
        await asyncio.sleep(plan.seconds)
        fleet.measuring, cpu, wall = (
            False,
            time.process_time() - cpu,
            time.perf_counter() - wall,
        )
        await say_and_wait("end")
        fleet.over = True
        await feeder
        await _until_done(fleet)
        for task in lives:
            task.cancel()
    lost = sum(agent.socket is None or agent.socket.lost for agent in fleet.agents)
    for agent in fleet.agents:
        agent.leave()
    return {
        "arrival": arrival,
        "seconds": wall,
        "cpu": cpu,
        "beats": in_ms(fleet.beats),
        "late": in_ms(fleet.late),
        "waits": in_ms(fleet.waits),
        "reports": in_ms(fleet.reports),
        "answered": len(fleet.beats),
        "blocks": fleet.blocks,
        "fenced": fleet.fenced,
        "refused": fleet.refused,
        "fed": fleet.fed,
        "done": fleet.done,
        "sockets_lost": lost,
    }


def in_ms(samples: list[float]) -> dict[str, float]:
    """Percentiles of the samples."""
    shares = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
    return {name: round(1000 * percentile(samples, share), 2) for name, share in shares.items()}


async def _until_done(fleet: Fleet) -> None:
    async with asyncio.timeout(120):
        while fleet.done < fleet.fed:  # noqa: ASYNC110 - no event announces it
            await asyncio.sleep(0.05)


if __name__ == "__main__":
    print(json.dumps(uvloop.run(measure(msgspec.json.decode(sys.stdin.readline(), type=Plan)))))
