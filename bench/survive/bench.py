"""`survive`: 10,000 pages crawled while spider, agents and center are killed in turn.

The same site as `crawl`. At the end every page must be there, as one item each. For comparison
Scrapy, which stores its state with JOBDIR, gets the same number of kills.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from bench.crawl import PAGES, SCRAPY
from bench.fetch import TwoWorkers, write_pages
from bench.figures import Result
from bench.options import Options
from bench.survive import peer
from bench.survive.ours import Ours

KILLS = 20


def run(_options: Options) -> Result:
    SCRAPY.prepare()
    with tempfile.TemporaryDirectory(prefix="skep-bench-") as name:
        folder = Path(name)
        write_pages(folder / "site")
        with TwoWorkers(root=folder / "site") as server:
            start = f"{server.url}page/0"
            ours = Ours(_made(folder / "ours"), start, PAGES, KILLS).crawl()
            theirs = peer.crawl(SCRAPY, _made(folder / "peer"), start, PAGES, KILLS)
    return _result(ours, theirs)


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _result(ours: dict[str, Any], theirs: dict[str, Any]) -> Result:
    lost = PAGES - ours["unique"]
    return Result(
        name="survive",
        unit="pages lost",
        ours=lost,
        peer=PAGES - theirs["unique"],
        floor=0,
        ratio=lost,
        bar=0,
        ok=lost == 0 and ours["items"] == ours["done"] == PAGES,
        meaning=f"pages lost over {KILLS} kill -9; the bar is none at all",
        more={"skep": ours, "scrapy_jobdir": theirs, "peer_version": SCRAPY.packages[0]},
    )
