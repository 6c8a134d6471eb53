"""Scrapy with JOBDIR under the same kills, restarted with the same command line.

It has one process, so all kills apply to that one. When it reports its end, the pages that it has
found are counted.
"""

from __future__ import annotations

import json
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from bench.figures import Wrong, neat
from bench.processes import ROOT, Peer

LOOK = 0.02
PATIENCE = 60.0


def crawl(scrapy: Peer, folder: Path, start: str, pages: int, kills: int) -> dict[str, Any]:
    """The content of its feed after all kills."""
    feed, killed, begun = folder / "items.jsonl", 0, time.monotonic()
    child = _begin(scrapy, folder, start)
    try:
        while killed < kills:
            goal = pages * (killed + 1) // (kills + 2)
            if not _reaches(child, feed, goal):
                break
            child.kill()
            child.wait()
            killed += 1
            child = _begin(scrapy, folder, start)
        child.wait(PATIENCE)
    finally:
        child.kill()
        child.wait()
    urls = _urls(feed)
    return {
        "items": len(urls),
        "unique": len(set(urls)),
        "kills": killed,
        "exit_code": child.returncode,
        "seconds": neat(time.monotonic() - begun),
    }


def _begin(scrapy: Peer, folder: Path, start: str) -> subprocess.Popen[bytes]:
    script = str(ROOT / "bench" / "peers" / "scrapy_jobdir.py")
    with (folder / "scrapy.log").open("ab") as log:
        return subprocess.Popen(
            [scrapy.python, "-I", script, start, str(folder / "job"), str(folder / "items.jsonl")],
            stdout=log,
            stderr=log,
        )


def _reaches(child: subprocess.Popen[bytes], feed: Path, goal: int) -> bool:
    """False if the crawl ended by itself before it had found this many."""
    deadline = time.monotonic() + PATIENCE
    while len(set(_urls(feed))) < goal:
        if child.poll() is not None:
            return False
        if time.monotonic() > deadline:
            raise Wrong(f"Scrapy makes no progress towards {goal} pages")
        time.sleep(LOOK)
    return True


def _urls(feed: Path) -> list[str]:
    """Complete lines only: a kill may leave an incomplete one."""
    found: list[str] = []
    if feed.exists():
        for line in feed.read_text(errors="replace").splitlines():
            with suppress(json.JSONDecodeError):
                item = json.loads(line)
                if item["title"]:
                    found.append(item["url"])
    return found
