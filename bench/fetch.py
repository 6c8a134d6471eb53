"""`fetch`: CPU for a page, from the request in hand to the decoded body in hand.

Ours: the http downloader with egress check, cookies, redirects, limits, decoding and
outcome, 64 at a time. Floor: a bare pycurl multi loop with 64 handles. Peer: aiohttp with
64 tasks on uvloop. All fetch the same 10,000 pages of about 10 KB from nginx with two
workers, and check status and length of each. CPU is the process's own, user and system,
around the loop. `archived` is ours plus what neither of the others does: two WARC records
for each page, compressed. Compressing alone costs more than the whole floor.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from bench.figures import Result, Sample, alternate, check, neat
from bench.options import Options
from bench.processes import Peer, own, versions
from skep.testing.pages import PAGE_BYTES, Pages
from skep.testing.servers import Nginx

PAGES = 10_000
CONNECTIONS = 64
RATIO_BAR = 0.33

AIOHTTP = Peer("aiohttp", ("aiohttp==3.14.5", "uvloop==0.23.0"))


class TwoWorkers(Nginx):
    """nginx on both cores, as the peers were measured."""

    def _configuration(self, port: int) -> str:
        return super()._configuration(port).replace("worker_processes 1;", "worker_processes 2;")


def write_pages(root: Path) -> None:
    """The demo site's pages as files, /page/0 to /page/9999."""
    folder = root / "page"
    folder.mkdir(parents=True)
    pages = Pages(PAGES)
    for number in range(PAGES):
        (folder / str(number)).write_text(pages.page(number))


def sample(found: dict[str, float]) -> Sample:
    check(PAGES, found["pages"], "pages fetched")
    if found["bytes"] < PAGES * PAGE_BYTES * 0.95:
        check(PAGES * PAGE_BYTES, found["bytes"], "bytes fetched")
    return {
        "cpu": found["cpu"] / PAGES * 1000,
        "rate": PAGES / found["seconds"],
    }


def run(options: Options) -> Result:
    AIOHTTP.prepare()
    with tempfile.TemporaryDirectory(prefix="skep-bench-") as folder:
        write_pages(Path(folder))
        with TwoWorkers(root=Path(folder)) as server:
            asked = (f"{server.url}page/", str(PAGES), str(CONNECTIONS))
            found = alternate(
                {
                    "ours": lambda: sample(own("bench.children.fetch", *asked, "bare")),
                    "peer": lambda: sample(AIOHTTP.run("aiohttp_fetch", *asked)),
                    "floor": lambda: sample(own("bench.floors.pycurl_fetch", *asked)),
                    "archived": lambda: sample(own("bench.children.fetch", *asked)),
                },
                options.rounds,
            )
    cpu = {name: figures["cpu"] for name, figures in found.items()}
    ratio = cpu["floor"].median / cpu["ours"].median
    return Result(
        name="fetch",
        unit="CPU s per 1,000 pages",
        ours=cpu["ours"].median,
        peer=cpu["peer"].median,
        floor=cpu["floor"].median,
        ratio=ratio,
        bar=RATIO_BAR,
        ok=ratio >= RATIO_BAR,
        meaning="CPU per page of a bare pycurl multi loop / of ours, body in hand",
        more={
            "archived_ratio": neat(cpu["floor"].median / cpu["archived"].median),
            "spread": {name: figure.told() for name, figure in cpu.items()},
            "pages_per_second": {name: one["rate"].told() for name, one in found.items()},
            "peer_version": AIOHTTP.packages[0],
            "versions": versions("pycurl"),
            "rounds": options.rounds,
        },
    )
