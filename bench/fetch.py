"""`fetch`: CPU for a page, from the request to the decoded body.

Ours: the http downloader with egress check, cookies, redirects, limits, decoding and outcome, with
64 concurrent downloads. Floor: a bare pycurl multi loop with 64 handles. Peer: aiohttp with 64
tasks on uvloop. All download the same 10,000 pages of about 10 KB from nginx with two workers, and
check status and length of each. CPU is that of the process, user and system, for the loop.

`archived` is the path of agents: ours plus two WARC records for each page with the digest of its
body, which neither of the others makes. `archived_ratio` is for pages that nginx sends as gzip, as
most servers do, with a floor that decodes them too: such bodies are stored as received.
`archived_plain_ratio` is for plain pages, which are compressed. Compression alone costs more than
the whole floor.
"""

from __future__ import annotations

import gzip
import tempfile
from pathlib import Path

from bench.figures import Result, Sample, alternate, check, neat
from bench.options import Options
from bench.processes import Peer, own, versions
from skep.testing.servers import Nginx
from skep.testing.site_pages import PAGE_BYTES, Pages

PAGES = 10_000
CONNECTIONS = 64
#: The default of nginx.
GZIP_LEVEL = 1
#: Size of a page as gzip, as a share of its bytes.
ZIPPED = 0.1
RATIO_BAR = 0.33
ARCHIVED_BAR = 0.35
ARCHIVED_PLAIN_BAR = 0.17

AIOHTTP = Peer("aiohttp", ("aiohttp==3.14.5", "uvloop==0.23.0"))


class TwoWorkers(Nginx):
    """nginx on both cores, as for the peers; /zipped/ is sent as gzip."""

    def _configuration(self, port: int) -> str:
        zipped = "location /zipped/ { gzip_static always; } }\n}"
        text = super()._configuration(port).replace("worker_processes 1;", "worker_processes 2;")
        return text.replace("}\n}", zipped)


def write_pages(root: Path) -> None:
    """The demo site's pages as files, /page/0 to /page/9999, also as gzip."""
    plain, zipped = root / "page", root / "zipped"
    plain.mkdir(parents=True)
    zipped.mkdir()
    pages = Pages(PAGES)
    for number in range(PAGES):
        text = pages.page(number)
        (plain / str(number)).write_text(text)
        (zipped / f"{number}.gz").write_bytes(gzip.compress(text.encode(), GZIP_LEVEL))


def sample(found: dict[str, float], *, least: float = 0.95) -> Sample:
    """`least`: the minimum share of the bytes of all pages that must have been received."""
    check(PAGES, found["pages"], "pages fetched")
    if found["bytes"] < PAGES * PAGE_BYTES * least:
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
            zipped = (f"{server.url}zipped/", *asked[1:], "gzip")
            found = alternate(
                {
                    "ours": lambda: sample(own("bench.children.fetch", *asked, "bare")),
                    "peer": lambda: sample(AIOHTTP.run("aiohttp_fetch", *asked)),
                    "floor": lambda: sample(own("bench.floors.pycurl_fetch", *asked)),
                    "archived_plain": lambda: sample(own("bench.children.fetch", *asked)),
                    "floor_gzip": lambda: sample(own("bench.floors.pycurl_fetch", *zipped)),
                    "archived": lambda: sample(own("bench.children.fetch", *zipped), least=ZIPPED),
                },
                options.rounds,
            )
    cpu = {name: figures["cpu"] for name, figures in found.items()}
    ratio = cpu["floor"].median / cpu["ours"].median
    archived = cpu["floor_gzip"].median / cpu["archived"].median
    plain = cpu["floor"].median / cpu["archived_plain"].median
    return Result(
        name="fetch",
        unit="CPU s per 1,000 pages",
        ours=cpu["ours"].median,
        peer=cpu["peer"].median,
        floor=cpu["floor"].median,
        ratio=ratio,
        bar=RATIO_BAR,
        ok=ratio >= RATIO_BAR and archived >= ARCHIVED_BAR and plain >= ARCHIVED_PLAIN_BAR,
        meaning="CPU per page of a bare pycurl multi loop / of ours, body in hand",
        more={
            "archived_ratio": neat(archived),
            "archived_bar": ARCHIVED_BAR,
            "archived_plain_ratio": neat(plain),
            "archived_plain_bar": ARCHIVED_PLAIN_BAR,
            "spread": {name: figure.told() for name, figure in cpu.items()},
            "pages_per_second": {name: one["rate"].told() for name, one in found.items()},
            "peer_version": AIOHTTP.packages[0],
            "versions": versions("pycurl"),
            "rounds": options.rounds,
        },
    )
