"""The work of the peers: nothing, and one byte into a file so that it can be counted."""

from __future__ import annotations

import os

_COUNT = os.open(os.environ["BENCH_COUNT"], os.O_WRONLY | os.O_APPEND)


def fetch(uri: str) -> str:
    os.write(_COUNT, b".")
    return uri
