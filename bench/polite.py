"""`polite`: does any host ever get more requests than its rule allows, over a whole fleet?

100 hosts (addresses of 127.0.1.0/24) with a rule of 2 requests per second each, one center, four
agent processes, default settings except for fewer concurrent downloads, so that the hosts are
distributed over all agents. The arrival of each request is measured at the servers. After 20 s one
agent is killed with -9; its hosts go to the others, which must not be visible at the servers
either.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from bench.centers import CenterDoor
from bench.figures import Result, Wrong, check, neat
from bench.options import Options
from bench.processes import ROOT
from skep.settings import Settings
from skep.testing.processes import AgentProcess, CenterProcess
from skep.testing.servers.recording_sites import most_in_a_second

HOSTS, AGENTS, RATE = 100, 4, 2.0
STEADY_SECONDS, KILLED_SECONDS, WARM_SECONDS = 20.0, 25.0, 40.0
CONCURRENCY = 16
#: Requests for each host: more than the whole benchmark can send.
PER_HOST = 2 * int(RATE * (STEADY_SECONDS + KILLED_SECONDS + WARM_SECONDS))

Starts = Mapping[str, list[float]]


def environment() -> dict[str, str]:
    """The default settings, instead of the short times of the test fleet."""
    usual = Settings()
    return {
        "SKEP_CENTER_ALIVE_AFTER": str(usual.center.alive_after),
        "SKEP_CENTER_HEARTBEAT_EVERY": str(usual.center.heartbeat_every),
        "SKEP_CENTER_SWEEP_EVERY": str(usual.center.sweep_every),
        "SKEP_LANES_LEASE_SECONDS": str(usual.lanes.lease_seconds),
        "SKEP_LANES_RECONCILE_EVERY": str(usual.lanes.reconcile_every),
        "SKEP_AGENT_REPORT_EVERY": str(usual.agent.report_every),
        "SKEP_AGENT_LEASE_WAIT": str(usual.agent.lease_wait),
        "SKEP_AGENT_CONCURRENCY": str(CONCURRENCY),
    }


@contextmanager
def recorder(hosts: int) -> Iterator[str]:
    """The servers, in a separate process; yields the address of the first."""
    command = [sys.executable, "-m", "skep.testing.servers.recording_sites", "--hosts", str(hosts)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            yield child.stdout.readline().strip()
        finally:
            child.terminate()


def starts_at(url: str) -> dict[str, list[float]]:
    """The times of requests for each host, as the servers recorded them."""
    with urlopen(f"{url}/starts", timeout=10) as answer:
        found: dict[str, list[float]] = json.load(answer)
    return found


def submit(door: CenterDoor, url: str, hosts: int, per_host: int) -> None:
    """Store the rules first, then submit the requests, all hosts mixed."""
    port = url.rpartition(":")[2]
    names = [f"127.0.1.{number}" for number in range(1, hosts + 1)]
    for name in names:
        door.call("PUT", f"/api/v1/sites/{name}", {"rate": RATE})
    door.call("PUT", "/api/v1/runs/polite", {"settings": {"block_size": 100}})
    for first in range(0, per_host, 20):
        numbers = range(first, min(first + 20, per_host))
        offered = [{"uri": f"http://{name}:{port}/{n}"} for n in numbers for name in names]
        door.call("POST", "/requestqueue/polite", offered)


def until_all_are_asked(url: str, hosts: int) -> None:
    deadline = time.monotonic() + WARM_SECONDS
    while len(starts_at(url)) < hosts:
        if time.monotonic() > deadline:
            raise Wrong(f"only {len(starts_at(url))} of {hosts} hosts got a request in time")
        time.sleep(0.2)


def used(starts: Starts, begin: float, end: float) -> float:
    """The share of the allowed requests that arrived between two times."""
    count = sum(begin <= at < end for times in starts.values() for at in times)
    return count / (RATE * HOSTS * (end - begin))


def fullest(starts: Starts, begin: float, end: float) -> int:
    """The maximum number of requests in any second of any host."""
    return max(most_in_a_second(at for at in one if begin <= at < end) for one in starts.values())


def measure() -> dict[str, Any]:
    """Run the fleet once."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="skep-bench-")))
        url = stack.enter_context(recorder(HOSTS))
        center = stack.enter_context(CenterProcess(folder / "center", environment()))
        door = CenterDoor(center.url, center.admin_token)
        submit(door, url, HOSTS, PER_HOST)
        agents = [
            stack.enter_context(
                AgentProcess(folder / f"a{number}", [center.url], center.agent_token, environment())
            )
            for number in range(AGENTS)
        ]
        until_all_are_asked(url, HOSTS)
        begin = time.monotonic()
        time.sleep(STEADY_SECONDS)
        killed = time.monotonic()
        agents[0].kill()
        time.sleep(KILLED_SECONDS)
        end = time.monotonic()
        starts = starts_at(url)
        ledger = door.call("GET", "/api/v1/ledger")
    check(HOSTS, len(starts), "hosts with requests")
    check(0, ledger["unaccounted"], "requests unaccounted for")
    asked = sum(len(times) for times in starts.values())
    return {
        "most_in_a_second": {
            "ever": fullest(starts, 0.0, end),
            "steady": fullest(starts, begin, killed),
            "after_kill": fullest(starts, killed, end),
        },
        "utilisation": {
            "steady": neat(used(starts, begin, killed)),
            "after_kill": neat(used(starts, killed, end)),
            "last_10_s": neat(used(starts, end - 10.0, end)),
        },
        "hosts_above_their_limit": sum(most_in_a_second(one) > RATE for one in starts.values()),
        "requests_asked": asked,
        "requests_done": ledger["ledger"]["done"],
    }


def run(options: Options) -> Result:
    del options  # one run takes a minute and is enough
    found = measure()
    most = found["most_in_a_second"]["ever"]
    return Result(
        name="polite",
        unit="requests in the fullest second of any host",
        ours=most,
        peer=None,
        floor=RATE,
        ratio=most / RATE,
        bar=1.0,
        ok=most <= RATE,
        meaning="the most that any host was asked in any second / its rule; above 1 is too much",
        more={
            **found,
            "hosts": HOSTS,
            "agents": AGENTS,
            "rule_per_host": RATE,
            "seconds": {"steady": STEADY_SECONDS, "after_kill": KILLED_SECONDS},
        },
    )
