"""Conformance tests for archives: subclass them and supply a fixture `backend`.

    class TestMyArchive(ArchiveConformance):
        @pytest.fixture
        def backend(self) -> ArchiveBackend: ...

The blobs are real WARC frames, so that a backend's tests may read its segments with other tools as
well. Nothing here sleeps or reads files: that is for the tests of the backend.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager
from random import Random
from typing import Protocol

import pytest

from skep.archive.frames import Exchange, FrameMaker, read_records, split_response
from skep.archive.ports import Archive, CommittedEnd, RecordLocation
from skep.errors import ConfigurationError, DiskFull, NotFound, Unavailable
from skep.testing.clock import ManualClock

SEGMENT_BYTES = 64 * 2**20
NOT_SEGMENTS = (
    "",
    ".",
    "..",
    "../secret",
    "/etc/passwd",
    "..%2fsecret",
    "a/b-00000001.warc.zst",
    "../w-00000001.warc.zst",
    "/w-00000001.warc.zst",
    "w-00000001.warc.zst/",
    "w-00000001.warc.zst\0",
    "w-00000001.warc.zst\n",
    "\nw-00000001.warc.zst",
    "w\\..\\w-00000001.warc.zst",
    ".w-00000001.warc.zst",
    "w-1.warc.zst",
    "w-000000001.warc.zst",
    "w-\u0660\u0660\u0660\u0660\u0660\u0660\u0660\u0661.warc.zst",
    "w-00000001.warc.zst.new",
    "w.lock",
)


class ArchiveBackend(Protocol):
    """The backend under test."""

    def make(self, writer: str = "w", segment_bytes: int = SEGMENT_BYTES) -> Archive:
        """An archive that is not open, always in the same place."""


class InPlaceBackend(ArchiveBackend, Protocol):
    """A backend that appends to a file."""

    def damage_tail(self, segment: str, size: int) -> None:
        """Make the segment exactly `size` bytes long: truncate it, or add meaningless bytes."""

    def full(self) -> AbstractContextManager[None]:
        """Inside this context no write succeeds."""


def committed(*ends: tuple[RecordLocation, bytes]) -> CommittedEnd:
    """The answer of a store that has committed these blobs and no others."""
    known: dict[str, int] = {}
    for place, blob in ends:
        known[place.segment] = max(known.get(place.segment, 0), place.offset + len(blob))

    async def committed_end(segment: str) -> int:
        return known.get(segment, 0)

    return committed_end


def pages(count: int, seed: int = 1, size: int = 600) -> list[bytes]:
    """Frames of downloads that differ and compress badly."""
    rng = Random(seed)  # noqa: S311 - test data
    maker = FrameMaker(ManualClock(), rng)
    return [
        maker.exchange_frames(
            Exchange(
                f"http://site.example/{seed}/{number}",
                status=200,
                reason="OK",
                response_headers=[("Content-Type", "text/plain")],
                body=rng.randbytes(rng.randrange(1, size)),
                address="192.0.2.1",
            )
        )
        for number in range(count)
    ]


class ArchiveConformance:
    """The contract of `skep.archive.ports.Archive`."""

    @pytest.fixture
    async def archive(self, backend: ArchiveBackend) -> AsyncIterator[Archive]:
        """An open, empty archive."""
        archive = backend.make()
        await archive.open(committed())
        yield archive
        await archive.close()

    async def test_what_was_put_is_read_back(self, archive: Archive) -> None:
        """D8: each blob is read back unchanged from its place."""
        blobs = pages(20)
        places = await archive.append(blobs)
        await read_all_back(archive, places, blobs)
        response, request = read_records(await archive.read(*where(places[7], blobs[7])))
        assert split_response(response).status == 200
        assert request.headers["WARC-Target-URI"] == "http://site.example/1/7"

    async def test_places_follow_each_other(self, archive: Archive) -> None:
        blobs = pages(3)
        first, second, third = await archive.append(blobs)
        assert first.segment == second.segment == third.segment
        assert second.offset == first.offset + len(blobs[0])
        assert third.offset == second.offset + len(blobs[1])

    async def test_an_empty_append_is_valid(self, archive: Archive) -> None:
        assert await archive.append([]) == []

    async def test_callers_at_the_same_time_get_their_own_places(self, archive: Archive) -> None:
        groups = [pages(number % 4 + 1, seed=number) for number in range(60)]
        answers = await asyncio.gather(*(archive.append(group) for group in groups))
        for places, group in zip(answers, groups, strict=True):
            await read_all_back(archive, places, group)
        every = [place for places in answers for place in places]
        assert len(set(every)) == sum(map(len, groups))

    async def test_a_cancelled_caller_harms_no_other(self, archive: Archive) -> None:
        tasks = [asyncio.create_task(archive.append(pages(1, seed=n))) for n in range(10)]
        await asyncio.sleep(0)
        tasks[4].cancel()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(answers[4], asyncio.CancelledError)
        for number in (0, 3, 5, 9):
            answer = answers[number]
            assert isinstance(answer, list)
            await read_all_back(archive, answer, pages(1, seed=number))

    async def test_a_segment_over_its_size_is_followed_by_another(
        self, backend: ArchiveBackend
    ) -> None:
        archive = backend.make(segment_bytes=4000)
        await archive.open(committed())
        blobs = pages(40)
        places = [(await archive.append([blob]))[0] for blob in blobs]
        segments, size = await archive.usage()
        assert segments == len({place.segment for place in places}) > 3
        assert size > sum(map(len, blobs))
        await read_all_back(archive, places, blobs)
        await archive.close()

    async def test_segments_are_deleted_but_for_the_newest(self, backend: ArchiveBackend) -> None:
        """D8: deleted segments are gone, the others are complete, and no number is reused."""
        archive = backend.make(segment_bytes=1)
        await archive.open(committed())
        blobs = pages(3)
        places = [(await archive.append([blob]))[0] for blob in blobs]
        assert (await archive.delete(places[0].segment) or 0) > len(blobs[0])
        assert await archive.delete(places[0].segment) == 0, "it was already deleted"
        assert await archive.delete(places[2].segment) is None, "the newest stays"
        assert await archive.delete("another-00000001.warc.zst") is None, "it is unknown"
        for name in NOT_SEGMENTS:
            assert await archive.delete(name) is None
        with pytest.raises(NotFound):
            await archive.read(places[0].segment, places[0].offset, len(blobs[0]))
        await read_all_back(archive, places[1:], blobs[1:])
        await archive.close()
        again = backend.make(segment_bytes=1)
        await again.open(committed(*zip(places, blobs, strict=True)))
        (place,) = await again.append(blobs[:1])
        assert place.segment > places[2].segment
        await again.close()

    async def test_sizes_of_what_is_there(self, archive: Archive) -> None:
        """Self-check: the sizes of segments; a missing segment has no size."""
        [blob] = pages(1)
        [place] = await archive.append([blob])
        sizes = await archive.sizes([place.segment, "nobody-00000009.warc.zst"])
        assert sizes.keys() == {place.segment}
        assert sizes[place.segment] >= place.offset + len(blob)

    async def test_it_goes_on_after_a_restart(self, backend: ArchiveBackend) -> None:
        blobs = pages(4)
        archive = backend.make()
        await archive.open(committed())
        places = await archive.append(blobs[:2])
        await archive.close()

        again = backend.make()
        await again.open(committed(*zip(places, blobs[:2], strict=True)))
        places += await again.append(blobs[2:])
        await read_all_back(again, places, blobs)
        assert len(set(places)) == len(places)
        await again.close()

    async def test_a_crash_before_the_commit_harms_no_record(self, backend: ArchiveBackend) -> None:
        """Bytes without a row: the next records follow them or replace them."""
        first, second, third = pages(3)
        kept, _unknown = await put_and_close(backend, [first, second])
        again = backend.make()
        await again.open(committed((kept, first)))
        (place,) = await again.append([third])
        await read_all_back(again, [kept, place], [first, third])
        await again.close()

    async def test_lost_committed_bytes_are_said_at_start(self, backend: ArchiveBackend) -> None:
        """The store has one committed byte more than the archive."""
        (blob,) = pages(1)
        (place,) = await put_and_close(backend, [blob])
        again = backend.make()
        with pytest.raises(ConfigurationError, match=place.segment):
            await again.open(committed((place, blob + b"x")))
        await again.close()

    async def test_a_lost_segment_is_said_at_start(self, backend: ArchiveBackend) -> None:
        """For example an unmounted folder: numbers with rows must not be used again."""
        blobs = pages(1)
        places = await put_and_close(backend, blobs)
        elsewhere = backend.make(writer="other")
        missing = RecordLocation(places[0].segment.replace("w-", "other-"), places[0].offset)
        with pytest.raises(ConfigurationError, match=missing.segment):
            await elsewhere.open(committed((missing, blobs[0])))
        await elsewhere.close()

    async def test_a_second_process_cannot_be_the_same_writer(
        self, backend: ArchiveBackend, archive: Archive
    ) -> None:
        second = backend.make()
        with pytest.raises(ConfigurationError):
            await second.open(committed())
        await second.close()
        blobs = pages(1)
        await read_all_back(archive, await archive.append(blobs), blobs)

    async def test_the_writer_is_free_after_a_close(self, backend: ArchiveBackend) -> None:
        blobs = pages(1)
        places = await put_and_close(backend, blobs)
        again = backend.make()
        await again.open(committed((places[0], blobs[0])))
        await read_all_back(again, places, blobs)
        await again.close()

    async def test_writers_share_a_place(self, backend: ArchiveBackend, archive: Archive) -> None:
        other = backend.make(writer="w-2")
        await other.open(committed())
        mine, theirs = pages(1), pages(1, seed=2)
        my_places, their_places = await asyncio.gather(archive.append(mine), other.append(theirs))
        assert my_places[0].segment != their_places[0].segment
        await read_all_back(archive, their_places, theirs)
        await read_all_back(other, my_places, mine)
        await other.close()

    async def test_what_is_not_there_is_not_found(self, archive: Archive) -> None:
        blobs = pages(1)
        (place,) = await archive.append(blobs)
        absent = place.segment.replace("1.warc", "9.warc")
        for segment, offset, length in (
            (absent, 0, 1),
            (place.segment, place.offset, len(blobs[0]) + 1),
            (place.segment, 2**62, 1),
            (place.segment, 0, 2**62),
            (place.segment, -1, 1),
            (place.segment, 0, -1),
        ):
            with pytest.raises(NotFound):
                await archive.read(segment, offset, length)

    @pytest.mark.parametrize("name", NOT_SEGMENTS)
    async def test_no_name_leads_out(self, archive: Archive, name: str) -> None:
        """Fault 51: a segment name is a name and never a path."""
        await archive.append(pages(1))
        with pytest.raises(NotFound):
            await archive.read(name, 0, 1)

    @pytest.mark.parametrize("writer", ["", "..", "a/b", "../a", ".a", "a\n", "a\0", "x" * 65])
    async def test_a_writer_is_a_name(self, backend: ArchiveBackend, writer: str) -> None:
        """Fault 51, for names of writers."""
        with pytest.raises(ConfigurationError):
            backend.make(writer=writer)

    async def test_only_an_open_archive_takes_bytes(self, backend: ArchiveBackend) -> None:
        archive = backend.make()
        with pytest.raises(Unavailable):
            await archive.append(pages(1))
        await archive.open(committed())
        await archive.close()
        await archive.close()
        with pytest.raises(Unavailable):
            await archive.append(pages(1))

    async def test_close_finishes_what_was_begun(self, backend: ArchiveBackend) -> None:
        archive = backend.make()
        await archive.open(committed())
        blobs = pages(3)
        begun = asyncio.create_task(archive.append(blobs))
        await asyncio.sleep(0)
        await archive.close()
        await read_all_back(archive, await begun, blobs)

    async def test_it_says_where_it_is(self, archive: Archive) -> None:
        assert archive.describe()


class InPlaceConformance(ArchiveConformance):
    """Additional tests for archives that append to a file: torn writes, a full volume."""

    async def test_a_restart_goes_on_in_the_same_segment(self, backend: InPlaceBackend) -> None:
        blobs = pages(2)
        places = await put_and_close(backend, blobs[:1])
        again = backend.make()
        await again.open(committed((places[0], blobs[0])))
        places += await again.append(blobs[1:])
        assert len({place.segment for place in places}) == 1
        await again.close()

    @pytest.mark.parametrize("torn", [1, 5, 100])
    async def test_a_torn_tail_is_cut(self, backend: InPlaceBackend, torn: int) -> None:
        """A crash during a write: committed bytes stay, the rest is removed."""
        first, second, third = pages(3)
        kept, lost = await put_and_close(backend, [first, second])
        backend.damage_tail(lost.segment, lost.offset + len(second) - torn)

        again = backend.make()
        await again.open(committed((kept, first)))
        (place,) = await again.append([third])
        assert place == lost, "the next record follows the last committed one"
        await read_all_back(again, [kept, place], [first, third])
        await again.close()

    async def test_bytes_that_mean_nothing_are_cut(self, backend: InPlaceBackend) -> None:
        first, second = pages(2)
        (kept,) = await put_and_close(backend, [first])
        backend.damage_tail(kept.segment, kept.offset + len(first) + 5000)

        again = backend.make()
        await again.open(committed((kept, first)))
        places = [kept, *await again.append([second])]
        assert places[1].offset == kept.offset + len(first)
        await read_all_back(again, places, [first, second])
        await again.close()

    async def test_the_first_record_of_a_segment_stays(self, backend: InPlaceBackend) -> None:
        """Nothing was committed: only the record that opens the segment stays."""
        blobs = pages(2)
        lost = await put_and_close(backend, blobs)
        again = backend.make()
        await again.open(committed())
        assert await again.append(blobs) == lost
        await again.close()

    async def test_a_full_disk_keeps_nothing_and_passes(
        self, backend: InPlaceBackend, archive: Archive
    ) -> None:
        """Fault 25: report it, stay up, continue without a restart."""
        before, during, after = pages(2), pages(9, seed=2), pages(2, seed=3)
        places = await archive.append(before)
        _, size = await archive.usage()
        with backend.full():
            for _ in range(3):
                with pytest.raises(DiskFull):
                    await archive.append(during)
                assert (await archive.usage())[1] == size
                await read_all_back(archive, places, before)
        places += await archive.append(after)
        assert places[2].offset == size, "it continues at the same offset"
        await read_all_back(archive, places, before + after)


def where(place: RecordLocation, blob: bytes) -> tuple[str, int, int]:
    return place.segment, place.offset, len(blob)


async def read_all_back(archive: Archive, places: list[RecordLocation], blobs: list[bytes]) -> None:
    for place, blob in zip(places, blobs, strict=True):
        assert await archive.read(*where(place, blob)) == blob


async def put_and_close(backend: ArchiveBackend, blobs: list[bytes]) -> list[RecordLocation]:
    archive = backend.make()
    await archive.open(committed())
    places = await archive.append(blobs)
    await archive.close()
    return places
