"""How peers are timed: their queue is full, two workers start, and the time is measured from the
first tenth of the jobs to the last. Start-up does not count."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]


def urls(count: int) -> list[str]:
    return [f"http://127.0.0.1/catalogue/page/{n}?ref=list" for n in range(count)]


def counter() -> Path:
    """A file that grows by one byte for each job; its path is in the environment."""
    file = Path(tempfile.mkdtemp(prefix="bench-")) / "count"
    file.touch()
    os.environ["BENCH_COUNT"] = str(file)
    return file


def measure(commands: Sequence[Sequence[str]], count: int, file: Path) -> dict[str, float]:
    """Start the workers and wait for their last job."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    quiet = subprocess.DEVNULL
    workers = [
        subprocess.Popen(command, env=environment, stdout=quiet, stderr=quiet, cwd=ROOT)
        for command in commands
    ]
    try:
        first = until(file, count // 10)
        begun = time.perf_counter()
        last = until(file, count)
        seconds = time.perf_counter() - begun
    finally:
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.wait(30)
    return {"seconds": seconds, "jobs": last - first, "done": last}


def until(file: Path, size: int) -> int:
    deadline = time.monotonic() + 240
    while (found := file.stat().st_size) < size:
        if time.monotonic() > deadline:
            sys.exit(f"only {found} jobs were done")
        time.sleep(0.005)
    return found
