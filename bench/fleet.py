"""`fleet`: what do a thousand agents cost, and how fast is a heartbeat answered?

Two real centers on one PostgreSQL (fsync on) and one Redis. The agents are simulated in one
lightweight load process, but everything that a center sees of them is real: each has a credential,
a WebSocket, a heartbeat every 3 s and a long poll for work; small blocks are leased and reported
while requests are submitted continuously. Default settings. CPU is reported separately for centers,
database, Redis and load, because they share this machine.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import psutil

from bench.centers import CenterDoor, running_center
from bench.children.fleet import RUN, Plan
from bench.figures import Figure, Result, Wrong, check, neat
from bench.options import Options
from bench.processes import ROOT
from skep.center.http.authentication import digest_of
from skep.runtime.ids import new_secret
from skep.settings import StoreSettings
from skep.store.open_store import open_store
from skep.testing.servers import postgres, redis

AGENTS, CENTERS = 1000, 2
SECONDS, WARM = 20.0, 8.0
#: Complete repetitions, one after the other.
LIVES = 3
BEAT_EVERY = 3.0
#: Each agent does a block of ten requests in ten seconds, and half of the agents wait for one.
BLOCKS_PER_AGENT, BLOCK_SIZE, WORK_SECONDS = 0.05, 10, 10.0
P99_BAR = 250.0
MEGABYTE = 2**20
STOP_SECONDS = 60.0


class Meters:
    """CPU and memory of groups of processes."""

    def __init__(self, groups: dict[str, Sequence[int]]) -> None:
        self._groups = groups
        self._before: dict[str, float] = {}

    def begin(self) -> None:
        self._before = self.cpu()

    def used(self) -> dict[str, float]:
        """CPU seconds of each group since `begin`."""
        return {name: used - self._before[name] for name, used in self.cpu().items()}

    def cpu(self) -> dict[str, float]:
        return {name: sum(map(_cpu_of, pids)) for name, pids in self._groups.items()}

    def memory(self, name: str) -> float:
        return float(sum(psutil.Process(pid).memory_info().rss for pid in self._groups[name]))


def _cpu_of(pid: int) -> float:
    """A process and its children, for example the backends of a database."""
    parent = psutil.Process(pid)
    times = [one.cpu_times() for one in (parent, *parent.children(recursive=True))]
    return float(sum(one.user + one.system for one in times))


async def issue_tokens(url: str, count: int) -> list[str]:
    """A credential for each agent, as after joining."""
    tokens = [new_secret("skep_agent") for _ in range(count)]
    store = open_store(url, StoreSettings())
    await store.open()
    try:
        digests = [(digest_of(token), f"sim-{no:05d}") for no, token in enumerate(tokens)]
        adding = (store.tokens.add(digest, "agent", agent, 0.0) for digest, agent in digests)
        await asyncio.gather(*adding)
    finally:
        await store.close()
    return tokens


def plan_of(doors: Sequence[CenterDoor], tokens: list[str], seconds: float) -> Plan:
    places = [urlsplit(door.url) for door in doors]
    return Plan(
        [(place.hostname or "", place.port or 0) for place in places],
        tokens,
        doors[0].token,
        seconds,
        WARM,
        BEAT_EVERY,
        BLOCKS_PER_AGENT * len(tokens),
        BLOCK_SIZE,
        WORK_SECONDS,
    )


@contextmanager
def load(plan: Plan) -> Iterator[subprocess.Popen[str]]:
    """The process that simulates the agents; its plan is its first line of input."""
    command = [sys.executable, "-m", "bench.children.fleet"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as child:
        try:
            say(child, msgspec.json.encode(plan).decode())
            yield child
        finally:
            child.terminate()


def say(child: subprocess.Popen[str], line: str) -> None:
    assert child.stdin is not None
    child.stdin.write(f"{line}\n")
    child.stdin.flush()


def hear(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    line = child.stdout.readline().strip()
    if not line:
        raise Wrong("the load process ended too early")
    return line


def measure(agents: int, seconds: float = SECONDS) -> dict[str, Any]:
    """One repetition with a fleet of this size."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="skep-bench-")))
        database = stack.enter_context(postgres(durable=True))
        bus = stack.enter_context(redis())
        url = database.fresh_database()
        settings = {"SKEP_STORE_URL": url, "SKEP_BUS_URL": bus.url}
        doors = [
            stack.enter_context(running_center(folder / f"c{number}", **settings))
            for number in range(CENTERS)
        ]
        doors[0].call("PUT", f"/api/v1/runs/{RUN}", {"settings": {"block_size": BLOCK_SIZE}})
        tokens = asyncio.run(issue_tokens(url, agents))
        meters = Meters(
            {
                "centers": [door.pid for door in doors],
                "postgres": [database.pid],
                "redis": [bus.pid],
            }
        )
        empty = meters.memory("centers")
        child = stack.enter_context(load(plan_of(doors, tokens, seconds)))
        check("begin", hear(child), "the output of the load")
        meters.begin()
        say(child, "")
        check("end", hear(child), "the output of the load")
        used, full = meters.used(), meters.memory("centers")
        say(child, "")
        found = json.loads(hear(child))
        ledger = doors[0].call("GET", "/api/v1/ledger")
    check(found["fed"], ledger["ledger"]["done"], "requests done")
    check(0, ledger["unaccounted"], "requests unaccounted for")
    check(0, found["sockets_lost"], "WebSockets lost")
    return told(agents, found, used, full - empty)


def told(
    agents: int, found: dict[str, Any], used: dict[str, float], memory: float
) -> dict[str, Any]:
    """The figures of one fleet."""
    seconds, thousands = found["seconds"], agents / 1000
    cores = {**{name: cpu / seconds for name, cpu in used.items()}, "load": found["cpu"] / seconds}
    return {
        "agents": agents,
        "heartbeat_ms": found["beats"],
        "heartbeats_per_second": neat(found["answered"] / seconds),
        "submitted_to_leased_ms": found["waits"],
        "report_ms": found["reports"],
        "blocks_per_second": neat(found["blocks"] / seconds),
        "blocks_fenced": found["fenced"],
        "calls_refused": found["refused"],
        "load_late_ms": found["late"],
        "cores": {name: neat(share) for name, share in cores.items()},
        "center_cores_per_1000_agents": neat(cores["centers"] / thousands),
        "center_megabytes_per_1000_agents": neat(memory / MEGABYTE / thousands),
        "registered_per_second": neat(agents / found["arrival"]),
    }


def p99_of(life: dict[str, Any]) -> float:
    return float(life["heartbeat_ms"]["p99"])


def run(options: Options) -> Result:
    """Report the median repetition, and the spread of the others."""
    lives = sorted((measure(options.agents) for _ in range(LIVES)), key=p99_of)
    found = lives[LIVES // 2]
    p99 = p99_of(found)
    spread = Figure(tuple(map(p99_of, lives))).told()
    return Result(
        name="fleet",
        unit="ms, 99 of 100 heartbeats are answered within",
        ours=p99,
        peer=None,
        floor=None,
        ratio=p99,
        bar=P99_BAR,
        ok=p99 < P99_BAR,
        meaning=f"p99 of a heartbeat of {options.agents} agents in ms; less is better",
        more={
            **found,
            "p99_ms": p99,
            "spread_ours": spread,
            "lives": LIVES,
            "centers": CENTERS,
            "seconds": SECONDS,
        },
    )
