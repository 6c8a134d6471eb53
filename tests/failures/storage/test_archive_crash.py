"""Real kills and a real full disk, against the archive in a folder.

A child process appends and says each place after the append came back; what it said must
be there afterwards, and every segment must be readable from end to end by FastWARC.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path
from random import Random
from typing import Any

import pytest

from skep.archive.folder import FolderArchive
from skep.archive.ports import RecordLocation
from skep.testing.conformance.archive.suite import committed, pages
from skep.testing.faults.archive_writer import (
    Said,
    WriterSetup,
    committed_at,
    ends_of,
    run_and_kill,
)
from skep.testing.needs import needs

with warnings.catch_warnings():  # FastWARC 1.1 warns about its own old names when imported
    warnings.simplefilter("ignore", DeprecationWarning)
    from fastwarc.warc import ArchiveIterator

KILLS = 20
SEGMENT_BYTES = 300_000

FILLER = """
import asyncio, json, sys
from pathlib import Path
from skep.archive.folder import FolderArchive
from skep.archive.frames import read_records
from skep.errors import DiskFull
from skep.testing.conformance.archive.suite import committed, pages, read_all_back

async def fill(archive, kept):
    for seed in range(1000):
        blobs = pages(5, seed=seed, size=9000)
        try:
            kept += zip(await archive.append(blobs), blobs, strict=True)
        except DiskFull as error:
            return str(error)

async def main(volume):
    ballast = volume / "ballast"
    ballast.write_bytes(bytes(300_000))
    archive = FolderArchive(volume / "archive", "w", 10**9)
    await archive.open(committed())
    kept = []
    said = await fill(archive, kept)
    _, size_when_full = await archive.usage()
    at_full = len(kept)
    end = kept[-1][0].offset + len(kept[-1][1])
    ballast.unlink()
    await fill(archive, kept)
    await read_all_back(archive, [place for place, _ in kept], [blob for _, blob in kept])
    await archive.close()
    (segment,) = (volume / "archive").glob("*.warc.zst")
    print(json.dumps({
        "said": said, "at_full": at_full, "size_when_full": size_when_full, "end": end,
        "kept": len(kept), "records": len(read_records(segment.read_bytes())),
    }))

asyncio.run(main(Path(sys.argv[1])))
"""


def killed(folder: Path, seed: int, lines: int, ends: dict[str, int]) -> list[Said]:
    """All that a writer said before it was killed."""
    return run_and_kill(WriterSetup(str(folder), "", "", SEGMENT_BYTES, seed, ends), lines)


def count_records(path: Path) -> int:
    with path.open("rb") as file:
        return sum(len(record.reader.read()) >= 0 for record in ArchiveIterator(file))


async def check(folder: Path, ends: dict[str, int], said: list[Said]) -> None:
    """Open as a center does after a crash: what was said is there, and no torn byte."""
    archive = FolderArchive(folder, "w", SEGMENT_BYTES)
    await archive.open(committed_at(ends))
    for place in said:
        blob = await archive.read(place.segment, place.offset, place.length)
        assert place.is_of(blob)
    await archive.close()


def check_segments(folder: Path, ends: dict[str, int], said: int) -> None:
    """Each is whole, and the newest ends where the last place that was said ends."""
    paths = sorted(folder.glob("*.warc.zst"))
    assert sum(count_records(path) for path in paths) >= 2 * said + len(paths)
    newest = paths[-1]
    if newest.name in ends:
        assert newest.stat().st_size == ends[newest.name]
    else:
        assert count_records(newest) == 1, "nothing of it was said: only its first record stays"


async def test_what_was_said_survives_kills(tmp_path: Path) -> None:
    """Twenty SIGKILLs at moments from a seed, in the middle of appends and rotations."""
    rng = Random(25)
    said: list[Said] = []
    for kill in range(KILLS):
        new = killed(tmp_path, kill * 10, rng.randrange(1, 120), ends_of(said))
        said += new
        await check(tmp_path, ends_of(said), new)
        check_segments(tmp_path, ends_of(said), len(said))
    await check(tmp_path, ends_of(said), said)
    assert len({place.segment for place in said}) > 3
    assert len(set(said)) == len(said)


@pytest.mark.parametrize("share", [0.01, 0.3, 0.99])
async def test_a_frame_torn_in_the_middle_is_cut(tmp_path: Path, share: float) -> None:
    """A power cut that left a part of the last frame, behind what was committed."""
    first, second = pages(2, size=5000)
    archive = FolderArchive(tmp_path, "w", SEGMENT_BYTES)
    await archive.open(committed())
    kept, torn = await archive.append([first, second])
    await archive.close()
    path = tmp_path / torn.segment
    os.truncate(path, torn.offset + int(len(second) * share) + 1)

    again = FolderArchive(tmp_path, "w", SEGMENT_BYTES)
    await again.open(committed((kept, first)))
    assert path.stat().st_size == torn.offset
    assert await again.append([second]) == [RecordLocation(path.name, torn.offset)]
    await again.close()
    assert count_records(path) == 5


def test_a_full_volume_keeps_what_it_took(tmp_path: Path) -> None:
    """Fault 25: ENOSPC on a volume of 1 MB; nothing is corrupt, and it goes on by itself."""
    facts = run_on_a_small_volume(FILLER, tmp_path)
    assert "No space left" in facts["said"]
    assert facts["at_full"] > 50
    assert facts["size_when_full"] == facts["end"], "no part of the failed write is left"
    assert facts["kept"] > facts["at_full"] + 20
    assert facts["records"] == 2 * facts["kept"] + 1


def run_on_a_small_volume(program: str, folder: Path) -> dict[str, Any]:
    """Run in a mount namespace of its own, where the folder is a tmpfs of 1 MB."""
    steps = 'mount -t tmpfs -o size=1m none "$1" && exec "$2" -c "$3" "$1"'
    boxed = ["unshare", "--map-root-user", "--mount", "sh", "-c"]
    needs("mount namespace")
    done = subprocess.run(
        [*boxed, steps, "sh", str(folder), sys.executable, program],
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    facts: dict[str, Any] = json.loads(done.stdout)
    return facts
