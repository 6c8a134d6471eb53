"""`jobs`: user code as a downloader, one call per request, compared with job queues.

Ours: a center and an agent, two processes, and two started children in their sandboxes; the code
returns its URI; every request, outcome and body is durable (SQLite, FULL, and the archive). Peers:
rq without fork (SimpleWorker), celery (prefork) and dramatiq with two processes each, and rq with
its default, which forks for each job; a Redis without persistence, no results, no isolation, the
same code and one byte into a file. All queues are full when the workers start, and the measurement
runs from the first tenth to the end. `shell` runs a script per request.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from bench.centers import STOP_SECONDS, CenterDoor, clean_environment, running_center
from bench.figures import Result, Sample, Wrong, alternate, check
from bench.options import Options
from bench.processes import ROOT, Peer
from skep.testing.servers import redis

JOBS, SLOW_JOBS, SHELL_JOBS = 10_000, 300, 600
RATIO_BAR, FORK_BAR, RATE_BAR, SHELL_BAR = 1.0, 10.0, 2_000.0, 150.0
SECONDS = 120.0
CODE = {
    "python": "def run(uri):\n    return uri\n",
    "shell": 'printf %s "$1"\n',
}

RQ = Peer("rq", ("rq==2.12.0", "redis[hiredis]==8.1.0"))
CELERY = Peer("celery", ("celery[redis]==5.7.0",))
DRAMATIQ = Peer("dramatiq", ("dramatiq[redis]==2.2.1",))


@contextmanager
def running_agent(folder: Path, door: CenterDoor) -> Iterator[None]:
    command = [sys.executable, "-m", "skep", "agent", "--center", door.url]
    command += ["--data", str(folder / "agent"), "--token-file", str(folder / "agent.token")]
    environment = clean_environment(SKEP_AGENT_CODE_WORKERS="2", SKEP_AGENT_CONCURRENCY="256")
    quiet = subprocess.DEVNULL
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=quiet, stderr=quiet) as child:
        try:
            yield
        finally:
            child.terminate()
            child.wait(STOP_SECONDS)


def ours(kind: str, jobs: int) -> Sample:
    """The agent starts when everything is accepted, like the workers of the peers."""
    with (
        tempfile.TemporaryDirectory(prefix="skep-bench-") as place,
        running_center(Path(place)) as door,
    ):
        settings = {"downloader": kind, "code": {"source": CODE[kind]}, "robots": False}
        door.call("PUT", "/api/v1/runs/jobs", {"settings": settings})
        urls = [f"http://127.0.0.1/catalogue/page/{n}?ref=list" for n in range(jobs)]
        door.call("POST", "/requestqueue/jobs", urls)
        with running_agent(Path(place), door):
            first = until(door, jobs // 10)
            begun = time.perf_counter()
            last = until(door, jobs)
            seconds = time.perf_counter() - begun
        audit = door.call("GET", "/api/v1/ledger?audit=true")
    check(jobs, audit["ledger"]["done"], "requests that are done")
    check(0, audit["unaccounted"], "requests missing in the ledger")
    return {"rate": (last - first) / seconds}


def until(door: CenterDoor, done: int) -> int:
    deadline = time.monotonic() + SECONDS
    while (found := int(door.call("GET", "/api/v1/ledger")["ledger"]["done"])) < done:
        if time.monotonic() > deadline:
            raise Wrong(f"only {found} requests were done in {SECONDS:g} s")
        time.sleep(0.02)
    return found


def peer(who: Peer, driver: str, url: str, jobs: int, *more: str) -> Sample:
    found = who.run(driver, url, str(jobs), *more)
    check(jobs, found["done"], f"jobs of {driver}")
    return {"rate": found["jobs"] / found["seconds"]}


def run(options: Options) -> Result:
    for one in (RQ, CELERY, DRAMATIQ):
        one.prepare()
    with redis() as server:

        def queue(who: Peer, driver: str, jobs: int, *more: str) -> Sample:
            return peer(who, driver, server.fresh_database(), jobs, *more)

        found = alternate(
            {
                "python": partial(ours, "python", 2 * JOBS),
                "shell": partial(ours, "shell", SHELL_JOBS),
                "rq simple": partial(queue, RQ, "rq_jobs", SLOW_JOBS * 5, "simple"),
                "rq fork": partial(queue, RQ, "rq_jobs", SLOW_JOBS, "fork"),
                "celery": partial(queue, CELERY, "celery_jobs", JOBS),
                "dramatiq": partial(queue, DRAMATIQ, "dramatiq_jobs", JOBS),
            },
            options.rounds,
        )
    rate = {name: figures["rate"] for name, figures in found.items()}
    median = {name: figure.median for name, figure in rate.items()}
    best = max(("rq simple", "celery", "dramatiq"), key=lambda name: median[name])
    ratio, fork_ratio = median["python"] / median[best], median["python"] / median["rq fork"]
    return Result(
        name="jobs",
        unit="requests/s",
        ours=median["python"],
        peer=median[best],
        floor=None,
        ratio=ratio,
        bar=RATIO_BAR,
        ok=ratio >= RATIO_BAR
        and fork_ratio >= FORK_BAR
        and median["python"] >= RATE_BAR
        and median["shell"] >= SHELL_BAR,
        meaning=f"our requests/s, boxed and durable / the best peer's, neither ({best})",
        more={
            "fork_ratio": float(f"{fork_ratio:.4g}"),
            "fork_bar": FORK_BAR,
            "rate_bar": RATE_BAR,
            "shell_bar": SHELL_BAR,
            "spread": {name: figure.told() for name, figure in rate.items()},
            "peer_versions": [one.packages[0] for one in (RQ, CELERY, DRAMATIQ)],
            "rounds": options.rounds,
        },
    )
