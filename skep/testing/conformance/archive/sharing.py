"""Conformance tests for an archive that several centers share; in addition to `suite`.

Each center writes its own segments and reads all of them at any time. A crash and the recovery of
one center never change what another has written.
"""

from __future__ import annotations

import asyncio

import pytest

from skep.archive.ports import Archive, RecordLocation
from skep.testing.conformance.archive.suite import (
    ArchiveBackend,
    committed,
    pages,
    read_all_back,
    where,
)

#: Names that could be confused with each other or with something else.
WRITERS = ("w", "w-2", "w-00000001", "w.parts", "parts", "W")


class SharingConformance:
    """Several writers in one place."""

    async def test_names_never_collide(self, backend: ArchiveBackend) -> None:
        archives = [backend.make(writer=writer, segment_bytes=1) for writer in WRITERS]
        blobs = {writer: pages(3, seed=seed) for seed, writer in enumerate(WRITERS)}
        await asyncio.gather(*(archive.open(committed()) for archive in archives))
        places: dict[str, list[RecordLocation]] = {writer: [] for writer in WRITERS}
        for number in range(3):
            for archive, writer in zip(archives, WRITERS, strict=True):
                places[writer] += await archive.append([blobs[writer][number]])
        every = [place.segment for some in places.values() for place in some]
        assert len(set(every)) == len(every) == 3 * len(WRITERS)
        for archive in archives:
            for writer in WRITERS:
                await read_all_back(archive, places[writer], blobs[writer])
        assert (await archives[0].usage())[0] == len(every)
        await asyncio.gather(*(archive.close() for archive in archives))

    async def test_a_segment_is_read_while_another_writes_it(self, backend: ArchiveBackend) -> None:
        """Every append can be read elsewhere when it has returned, also across rotations."""
        writer, reader = backend.make(segment_bytes=6000), backend.make(writer="reader")
        await writer.open(committed())
        await reader.open(committed())
        blobs = pages(40)
        places: list[RecordLocation] = []
        for blob in blobs:
            places += await writer.append([blob])
            assert await reader.read(*where(places[-1], blob)) == blob
        await read_all_back(reader, places, blobs)
        assert len({place.segment for place in places}) > 3
        await writer.close()
        await reader.close()

    @pytest.mark.parametrize("known", [0, 1, 3])
    async def test_a_recovery_touches_no_segment_of_others(
        self, backend: ArchiveBackend, known: int
    ) -> None:
        """One center crashed and returns with few committed bytes; another continues."""
        crashed, other = backend.make(), backend.make(writer="w-2")
        mine, theirs = pages(3), pages(6, seed=2)
        await crashed.open(committed())
        await other.open(committed())
        my_places = await crashed.append(mine)
        their_places = await other.append(theirs[:3])
        await crashed.close()
        again: Archive = backend.make()
        rows = zip(my_places[:known], mine[:known], strict=True)
        recovery = asyncio.create_task(again.open(committed(*rows)))
        their_places += await other.append(theirs[3:])
        await recovery
        await read_all_back(again, their_places, theirs)
        await read_all_back(other, my_places[:known], mine[:known])
        await again.append(mine)
        await read_all_back(other, their_places, theirs)
        await again.close()
        await other.close()

    async def test_segments_of_others_are_deleted_but_for_the_newest(
        self, backend: ArchiveBackend
    ) -> None:
        """Retention runs on any center; a segment that is still written is never deleted."""
        writer, deleter = backend.make(segment_bytes=1), backend.make(writer="deleter")
        await writer.open(committed())
        await deleter.open(committed())
        blobs = pages(3)
        places = [(await writer.append([blob]))[0] for blob in blobs]
        assert await deleter.delete(places[0].segment)
        assert await deleter.delete(places[2].segment) is None
        await read_all_back(deleter, places[1:], blobs[1:])
        await writer.close()
        await deleter.close()
