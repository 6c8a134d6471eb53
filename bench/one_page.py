"""One page by `skep run` and by `scrapy runspider`: how long an author waits for a first result.

Both are whole commands in an empty folder, from the start of the program to its end: start it,
download one page of 10 KB from the same nginx, extract its title, write the item to a file. Ours
starts a center and an agent with a new database, and stores request, page and item. Both have
compiled bytecode, as after any first start, and use their default settings.
"""

from __future__ import annotations

import json
import resource
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.centers import clean_environment
from bench.crawl import SCRAPY
from bench.fetch import TwoWorkers
from bench.figures import Sample, Wrong, check
from bench.processes import ROOT
from skep.testing.site_pages import Pages

OURS = ROOT / "bench" / "children" / "one_page.py"
PEER = ROOT / "bench" / "peers" / "scrapy_one_page.py"
ITEMS = "items.jsonl"
SECONDS = 120.0


@contextmanager
def served_page() -> Iterator[str]:
    """The URL of the page."""
    SCRAPY.prepare()
    with tempfile.TemporaryDirectory(prefix="skep-bench-") as folder:
        Path(folder, "page").mkdir()
        Path(folder, "page", "0").write_text(Pages(1).page(0))
        with TwoWorkers(root=Path(folder)) as server:
            yield f"{server.url}page/0"


def skep_run(program: Sequence[str], url: str) -> Sample:
    return _looked([*program, "run", str(OURS), "-a", f"url={url}", "-o", ITEMS], url)


def scrapy_runspider(url: str) -> Sample:
    program = Path(SCRAPY.python).with_name("scrapy")
    return _looked([str(program), "runspider", str(PEER), "-a", f"url={url}", "-o", ITEMS], url)


def _looked(command: Sequence[str], url: str) -> Sample:
    """Seconds of the whole command, and CPU of it and all its children."""
    with tempfile.TemporaryDirectory(prefix="skep-bench-") as folder:
        before, begun = _cpu(), time.perf_counter()
        done = subprocess.run(
            command,
            cwd=folder,
            env=clean_environment(),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        seconds, used = time.perf_counter() - begun, _cpu() - before
        if done.returncode:
            raise Wrong(f"{command[0]} ended with {done.returncode}:\n{done.stderr[-3000:]}")
        lines = Path(folder, ITEMS).read_text().splitlines()
    check([url], [json.loads(line)["url"] for line in lines], "items in the file")
    check(True, all(json.loads(line)["title"] for line in lines), "a title in each")
    return {"seconds": seconds, "cpu": used}


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
