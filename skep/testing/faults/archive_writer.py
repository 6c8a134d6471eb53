"""A process that appends to an archive until it is killed, and prints each record location.

`run_and_kill` starts it for a test and ends it with SIGKILL. It prints a location only after the
append has returned, so every printed location must be readable afterwards.
"""

from __future__ import annotations

import asyncio
import hashlib
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

import msgspec

from skep.archive.frames import Exchange, FrameMaker
from skep.archive.ports import Archive, CommittedEnd
from skep.archive.registry import open_archive
from skep.runtime.clock import SystemClock

WRITER = "w"
AT_ONCE = 4


class Said(NamedTuple):
    """One line of the process: the location that an append returned."""

    segment: str
    offset: int
    length: int
    digest: str

    def is_of(self, blob: bytes) -> bool:
        return hashlib.sha256(blob).hexdigest() == self.digest


class WriterSetup(msgspec.Struct, frozen=True):
    """The setup of the process, as JSON in its only argument."""

    url: str
    home: str
    login: str
    segment_bytes: int
    seed: int
    ends: dict[str, int]


def run_and_kill(orders: WriterSetup, lines: int) -> list[Said]:
    """Start it, read `lines` lines, kill it; return its output up to the last complete line."""
    words = [sys.executable, "-m", __name__, msgspec.json.encode(orders).decode()]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        said = [child.stdout.readline() for _ in range(lines)]
        child.kill()
        said += child.stdout.readlines()
    assert child.returncode == -9, "the child ended before it was killed"
    return [_parsed(line) for line in said if line.endswith("\n")]


def _parsed(line: str) -> Said:
    segment, offset, length, digest = line.split()
    return Said(segment, int(offset), int(length), digest)


def ends_of(said: Sequence[Said]) -> dict[str, int]:
    """The end of each segment, as the store would have it."""
    ends: dict[str, int] = {}
    for place in said:
        ends[place.segment] = max(ends.get(place.segment, 0), place.offset + place.length)
    return ends


def committed_at(ends: Mapping[str, int]) -> CommittedEnd:
    """The callback that an archive uses when it is opened."""

    async def committed_end(segment: str) -> int:
        return ends.get(segment, 0)

    return committed_end


async def _keep_appending(archive: Archive, rng: Random) -> None:
    maker = FrameMaker(SystemClock(), rng)
    while True:
        blobs = [_page(maker, rng) for _ in range(3)]
        for place, blob in zip(await archive.append(blobs), blobs, strict=True):
            digest = hashlib.sha256(blob).hexdigest()
            sys.stdout.write(f"{place.segment} {place.offset} {len(blob)} {digest}\n")
            sys.stdout.flush()


def _page(maker: FrameMaker, rng: Random) -> bytes:
    body = rng.randbytes(rng.randrange(9000))
    return maker.exchange_frames(Exchange("http://h/", status=200, body=body))


async def _main(orders: WriterSetup) -> None:
    home = Path(orders.home)
    archive = open_archive(orders.url, WRITER, orders.segment_bytes, home=home, login=orders.login)
    await archive.open(committed_at(orders.ends))
    seeds = range(orders.seed, orders.seed + AT_ONCE)
    writers = (_keep_appending(archive, Random(seed)) for seed in seeds)  # noqa: S311 (repeats)
    await asyncio.gather(*writers)


if __name__ == "__main__":
    asyncio.run(_main(msgspec.json.decode(sys.argv[1], type=WriterSetup)))
