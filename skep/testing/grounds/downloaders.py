"""Downloaders of the `http` kind for tests: opened as runs open them, closed at the end.

They run in the process of the test. They may connect to loopback, and must never be used for
anything else.
"""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random

from skep.archive.records import read_records, split_response
from skep.downloaders.egress_policy import EgressPolicy
from skep.downloaders.http import HttpDownloader, HttpKind
from skep.downloaders.ports import Fetched
from skep.model.run import RunSettings
from skep.runtime.clock import SystemClock

LOOPBACK = ("127.0.0.0/8", "::1/128")
PAGE = b"<title>A page</title>" + b"<p>with some text</p>" * 400
Open = Callable[..., HttpDownloader]


@asynccontextmanager
async def http_downloaders(**usual: object) -> AsyncIterator[Open]:
    """Opens downloaders that may connect to loopback; `usual` are settings of all of them."""
    made: list[HttpDownloader] = []

    def open_one(
        *, allow: tuple[str, ...] = LOOPBACK, ca_file: str = "", **settings: object
    ) -> HttpDownloader:
        policy, rng = EgressPolicy(allow=allow), Random(1)  # noqa: S311 (a test repeats)
        kind = HttpKind(SystemClock(), rng, policy, ca_file=ca_file)
        chosen: dict[str, object] = {"time_limit": 5.0, "host_concurrency": 64, **usual, **settings}
        made.append(kind.open(f"run-{len(made)}", RunSettings(**chosen)))  # type: ignore[arg-type]  # checked by msgspec
        return made[-1]

    yield open_one
    for downloader in made:
        await downloader.close()


def body_of(fetched: Fetched) -> bytes:
    """The body of the stored page; b"" without a page."""
    return split_response(read_records(fetched.frames)[0]).body if fetched.frames else b""


def raw_deflate(data: bytes) -> bytes:
    """The form of `deflate` that many servers send: without zlib's header and checksum."""
    engine = zlib.compressobj(9, zlib.DEFLATED, -15)
    return engine.compress(data) + engine.flush()
