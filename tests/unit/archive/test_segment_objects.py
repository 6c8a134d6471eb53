"""Where the bytes of a segment are in a bucket: names and arithmetic."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from skep.archive.segment_objects import (
    Found,
    Layout,
    Piece,
    layouts,
    number_of,
    part_key,
    whole_key,
    writer_of,
)

SEGMENT = "center-1-00000007.warc.zst"
SIZE = 40


@given(
    cuts=st.sets(st.integers(1, SIZE - 1)),
    gone=st.sets(st.integers(0, 5)),
    whole=st.integers(0, SIZE),
    offset=st.integers(0, SIZE),
    length=st.integers(0, SIZE + 3),
)
def test_a_place_is_found_or_said_to_be_nowhere(
    cuts: set[int], gone: set[int], whole: int, offset: int, length: int
) -> None:
    """Whatever parts are gone and however long the whole is: the right bytes, or none."""
    data = bytes(range(SIZE))
    starts = [0, *sorted(cuts)]
    ends = [*starts[1:], SIZE]
    objects = {
        part_key(SEGMENT, start): data[start:end]
        for number, (start, end) in enumerate(zip(starts, ends, strict=True))
        if number not in gone
    }
    covered = set(range(whole)) | {
        byte for key, part in objects.items() for byte in range(start_of(key), end_of(key, part))
    }
    if whole:
        objects[whole_key(SEGMENT)] = data[:whole]
    layout = layouts(Found(key, len(part), 0.0) for key, part in objects.items()).get(
        SEGMENT, Layout()
    )
    slices = layout.slices(offset, length)
    if slices is None:
        assert not set(range(offset, offset + length)) <= covered
    else:
        found = b"".join(objects[key][start : start + n] for key, start, n in slices)
        assert found == data[offset : offset + length]
        assert len(found) == length
    assert layout.size == sum(map(len, objects.values()))
    assert sorted(layout.keys()) == sorted(objects)
    assert set(range(layout.end)) <= covered


def start_of(key: str) -> int:
    return int(key.rpartition("/")[2])


def end_of(key: str, part: bytes) -> int:
    return start_of(key) + len(part)


def test_names_lead_there_and_back() -> None:
    assert (writer_of(SEGMENT), number_of(SEGMENT)) == ("center-1", 7)
    assert whole_key(SEGMENT) == f"center-1/{SEGMENT}"
    assert part_key(SEGMENT, 12) == "center-1/parts/00000007/00000000000012"


def test_a_listing_shows_only_what_is_ours() -> None:
    strange = [
        "center-1/README.txt",
        SEGMENT,
        f"other/{SEGMENT}",
        "center-1/parts/7/00000000000000",
        "center-1/parts/00000007/0",
        f"{whole_key(SEGMENT)}.tmp",
    ]
    good = [Found(whole_key(SEGMENT), 5, 1.0), Found(part_key(SEGMENT, 5), 3, 1.0)]
    found = layouts([*(Found(key, 1, 0.0) for key in strange), *good])
    assert list(found) == [SEGMENT]
    layout = found[SEGMENT]
    assert layout.whole == Piece(whole_key(SEGMENT), 0, 5)
    assert (layout.end, layout.size, len(layout.beyond_whole())) == (8, 8, 1)
