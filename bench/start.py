"""`start`: time to the first answer, idle memory, and the time of the help.

`skep up` with an empty data folder until /readyz returns 200; the resident memory of center and
agent (one process and its children) after five idle seconds; `skep --help`; and one page by `skep
run` compared with one by `scrapy runspider` (`run_ratio`).
"""

from __future__ import annotations

import http.client
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from bench.centers import clean_environment
from bench.crawl import SCRAPY
from bench.figures import Figure, Result, Sample, Wrong, alternate, check, neat
from bench.one_page import scrapy_runspider, served_page, skep_run
from bench.options import Options
from bench.processes import ROOT
from skep.testing.private import free_port

REST_SECONDS = 5.0
START_LIMIT = 30.0
READY_BAR, MEMORY_BAR, HELP_BAR = 1.5, 150.0, 0.3
#: `skep run` of one page / `scrapy runspider` of the same page.
RUN_RATIO_BAR = 1.4


def program() -> list[str]:
    """The installed command: its start-up script is part of the time."""
    installed = Path(sys.executable).parent / "skep"
    return [str(installed)] if installed.exists() else [sys.executable, "-m", "skep"]


def up(rest: float = REST_SECONDS) -> Sample:
    """Seconds to ready and idle MB of one `skep up`."""
    with tempfile.TemporaryDirectory(prefix="skep-bench-") as folder:
        port = free_port()
        command = [*program(), "up", "--data", f"{folder}/data", "--port", str(port)]
        begun = time.perf_counter()
        with subprocess.Popen(
            command,
            cwd=folder,
            env=clean_environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as child:
            try:
                seconds = wait_until_ready(child, port, begun)
                time.sleep(rest)
                check(None, child.poll(), "skep up is still there")
                return {"ready": seconds, "memory": resident_mb(child.pid)}
            finally:
                child.terminate()
                child.wait(START_LIMIT)


def wait_until_ready(child: subprocess.Popen[bytes], port: int, begun: float) -> float:
    while child.poll() is None and time.perf_counter() - begun < START_LIMIT:
        line = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        try:
            line.request("GET", "/readyz")
            if line.getresponse().status == 200:
                return time.perf_counter() - begun
        except (OSError, http.client.HTTPException):
            time.sleep(0.005)
        finally:
            line.close()
    raise Wrong("skep up did not become ready")


def resident_mb(pid: int) -> float:
    """Resident memory of the process and all its children."""
    main = psutil.Process(pid)
    family = [main, *main.children(recursive=True)]
    return float(sum(one.memory_info().rss for one in family)) / 1e6


def show_help() -> Sample:
    begun = time.perf_counter()
    done = subprocess.run(
        [*program(), "--help"], cwd=ROOT, env=clean_environment(), capture_output=True, check=True
    )
    seconds = time.perf_counter() - begun
    check(True, b"Usage" in done.stdout, "help on the screen")
    return {"seconds": seconds}


def bare_python() -> Sample:
    """The floor: an interpreter that does nothing."""
    begun = time.perf_counter()
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    return {"seconds": time.perf_counter() - begun}


def warm_up(url: str) -> None:
    """Run once without a measurement: then the bytecode is compiled, as after any first start."""
    show_help()
    up(rest=0.0)
    skep_run(program(), url)
    scrapy_runspider(url)


def run_ratio(found: dict[str, dict[str, Figure]]) -> float:
    """The ratio of the medians; both alternated in the same rounds."""
    return found["run"]["seconds"].median / found["scrapy"]["seconds"].median


def run(options: Options) -> Result:
    with served_page() as url:
        warm_up(url)
        found = alternate(
            {
                "up": up,
                "help": show_help,
                "python": bare_python,
                "run": lambda: skep_run(program(), url),
                "scrapy": lambda: scrapy_runspider(url),
            },
            options.rounds,
        )
    ready, memory = found["up"]["ready"], found["up"]["memory"]
    helped = found["help"]["seconds"]
    small = memory.median <= MEMORY_BAR and helped.median <= HELP_BAR
    return Result(
        name="start",
        unit="s",
        ours=ready.median,
        peer=None,
        floor=found["python"]["seconds"].median,
        ratio=ready.median,
        bar=READY_BAR,
        ok=ready.median <= READY_BAR and small and run_ratio(found) <= RUN_RATIO_BAR,
        meaning="seconds from `skep up` to the first 200 of /readyz; less is better",
        more={
            "ready_seconds": ready.told(),
            "memory_mb": memory.told(),
            "memory_bar": MEMORY_BAR,
            "help_seconds": helped.told(),
            "help_bar": HELP_BAR,
            "bare_python_seconds": found["python"]["seconds"].told(),
            "run_ratio": neat(run_ratio(found)),
            "run_ratio_bar": RUN_RATIO_BAR,
            "run_seconds": found["run"]["seconds"].told(),
            "scrapy_seconds": found["scrapy"]["seconds"].told(),
            "run_cpu": found["run"]["cpu"].told(),
            "scrapy_cpu": found["scrapy"]["cpu"].told(),
            "peer_version": SCRAPY.packages[0],
            "rounds": options.rounds,
        },
    )
