"""`soak`: does a center or an agent grow when it runs for a long time?

`skep center` and `skep agent` on SQLite (`--set embedded`: both in one process; `--set
postgres_redis`: on PostgreSQL and Redis) under a steady load: runs that start and end, a job that
fires every 5 s, crawls with a spider process each, failures, expiry, queries, and retention that
deletes everything after half a minute. Heartbeats, sweeps and checks run at ten times the default
rate: an hour equals ten quiet hours. Memory, open files and threads of both processes are sampled;
a line is fitted after a warm-up third.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from bench.centers import CenterDoor
from bench.figures import Result, Wrong, neat
from bench.kill.fleet import Witness
from bench.options import Options
from bench.processes import ROOT
from bench.soak.load import PAGES, Load
from bench.soak.slopes import Series, after_warm_up, by_parts, fit, grows, piles_up, thirds
from skep.testing.processes import AgentProcess, CenterProcess
from skep.testing.servers import postgres, redis

#: Maximum growth in MB per hour, without noise. A heap of live objects changes its shape for
#: hours; at 8 MB per hour, and ten times the usual rate, a process that starts with 100 MB is
#: restarted for other reasons long before this matters.
MEMORY_BAR = 8.0
SAMPLE_EVERY, STEP = 2.0, 0.02
KINDS = ("memory", "files", "threads")
#: Short times, so that retention has deleted its first data before the warm-up ends.
SHORT = {
    "SKEP_KEEP_BODIES_AGE": "20",
    "SKEP_KEEP_LOGS_AGE": "25",
    "SKEP_KEEP_ROWS_AGE": "30",
    "SKEP_KEEP_EVERY": "5",
    "SKEP_ARCHIVE_SEGMENT_BYTES": str(2**20),
    "SKEP_CENTER_VITALS_KEPT": "60",
    "SKEP_AGENT_IDLE_CLOSE": "10",
}

Samples = dict[str, list[tuple[float, float]]]
Steady = Mapping[str, Series]


@dataclass(slots=True)
class Meter:
    """Samples the resources of one process."""

    process: psutil.Process
    samples: Samples = field(default_factory=lambda: {kind: [] for kind in KINDS})

    def sample(self, at: float) -> None:
        with self.process.oneshot():
            self.samples["memory"].append((at, self.process.memory_info().rss / 1e6))
            self.samples["files"].append((at, float(self.process.num_fds())))
            self.samples["threads"].append((at, float(self.process.num_threads())))

    def cpu(self) -> float:
        times = self.process.cpu_times()
        return float(times.user + times.system)


@dataclass(frozen=True, slots=True)
class World:
    """The subject of a soak: the address for calls, and the processes to watch."""

    door: CenterDoor
    processes: dict[str, int]


@contextmanager
def apart(folder: Path, settings: dict[str, str]) -> Iterator[World]:
    """A center and an agent in two processes."""
    with CenterProcess(folder / "center", settings) as center:
        token = center.agent_token
        with AgentProcess(folder / "agent", [center.url], token, settings) as agent:
            door = CenterDoor(center.url, center.admin_token, center.pid)
            yield World(door, {"center": center.pid, "agent": agent.pid})


@contextmanager
def embedded(folder: Path, settings: dict[str, str]) -> Iterator[World]:
    """`skep up`."""
    with CenterProcess(folder / "center", settings, with_agent=True) as center:
        door = CenterDoor(center.url, center.admin_token, center.pid)
        yield World(door, {"both": center.pid})


@contextmanager
def scaled_out(folder: Path, settings: dict[str, str]) -> Iterator[World]:
    """A center on separate servers, and an agent."""
    with postgres(durable=True) as database, redis() as bus:
        places = {"SKEP_STORE_URL": database.fresh_database(), "SKEP_BUS_URL": bus.url}
        with apart(folder, {**settings, **places}) as world:
            yield world


SETS: dict[str, Callable[[Path, dict[str, str]], Any]] = {
    "sqlite": apart,
    "embedded": embedded,
    "postgres_redis": scaled_out,
}


def soak(name: str, minutes: float) -> dict[str, Any]:
    """Soak one set-up for this time."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="skep-bench-")))
        site = Witness(PAGES, 0.02)
        stack.callback(site.close)
        settings = {**SHORT, "SKEP_JOBS_FOLDER": str(ROOT / "examples")}
        world: World = stack.enter_context(SETS[name](folder, settings))
        load = Load(world.door, site.url)
        meters = {who: Meter(psutil.Process(pid)) for who, pid in world.processes.items()}
        begun, cpu = time.monotonic(), {who: meter.cpu() for who, meter in meters.items()}
        load.begin()
        live(load, meters, begun + minutes * 60)
        seconds = time.monotonic() - begun
        cores = {who: neat((meter.cpu() - cpu[who]) / seconds) for who, meter in meters.items()}
        ledger = load.finish()
    return {
        "seconds": neat(seconds),
        "cores": cores,
        "runs": load.runs,
        "crawls": load.crawls,
        "offered": load.offered,
        **{key: ledger[key] for key in ("accepted", "done", "dead", "expired", "forgotten")},
        **judged(load.waits, {who: meter.samples for who, meter in meters.items()}),
    }


def live(load: Load, meters: dict[str, Meter], until: float) -> None:
    next_sample = 0.0
    while (now := time.monotonic()) < until:
        load.step()
        if now >= next_sample:
            next_sample = now + SAMPLE_EVERY
            for meter in meters.values():
                meter.sample(now)
        time.sleep(STEP)


def judged(waits: list[tuple[float, float]], watched: dict[str, Samples]) -> dict[str, Any]:
    """Every figure, and which of them are leaks."""
    steady = {
        who: {kind: after_warm_up(series) for kind, series in samples.items()}
        for who, samples in watched.items()
    }
    leaks = [f"memory of {w}" for w, one in steady.items() if grows(one["memory"], MEMORY_BAR)]
    leaks += [
        f"{kind} of {who}"
        for who, one in steady.items()
        for kind in ("files", "threads")
        if piles_up(one[kind])
    ]
    first, last = thirds(waits)
    return {
        "leaks": leaks,
        "call_p99_ms": {"first_third": neat(first), "last_third": neat(last)},
        **{who: _figures(watched[who], one) for who, one in steady.items()},
    }


def _figures(all_of_it: Samples, steady: Steady) -> dict[str, Any]:
    lines = {f"{kind}_an_hour": fit(series).told() for kind, series in steady.items()}
    shapes = {
        f"{kind}_in_twelve_parts": " ".join(f"{value:g}" for value in by_parts(series))
        for kind, series in all_of_it.items()
    }
    return {**lines, **shapes}


def worst(found: dict[str, dict[str, Any]]) -> tuple[float, float]:
    """(slope, lower bound) of the memory of the process that grows most."""
    lines = [
        (one["memory_an_hour"]["low"], one["memory_an_hour"]["slope"])
        for told in found.values()
        for one in told.values()
        if isinstance(one, dict) and "memory_an_hour" in one
    ]
    low, slope = max(lines)
    return slope, low


def run(options: Options) -> Result:
    names = options.sets or ("sqlite",)
    if unknown := [name for name in names if name not in SETS]:
        raise Wrong(f"{unknown[0]} is not one of {', '.join(SETS)}")
    found = {name: soak(name, options.minutes) for name in names}
    slope, low = worst(found)
    return Result(
        name="soak",
        unit="MB/h",
        ours=slope,
        peer=None,
        floor=None,
        ratio=low,
        bar=MEMORY_BAR,
        ok=not any(told["leaks"] for told in found.values()),
        meaning="MB an hour by which memory grows at least (95 %), after a warm-up third; "
        "open files and threads must not pile up, and the ledger must be exact",
        more={**found, "minutes": options.minutes},
    )
