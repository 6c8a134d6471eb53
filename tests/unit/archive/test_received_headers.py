"""Received header lines: split late, archived as they came only where that is safe (fault 70)."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skep.archive.frames import Exchange, FrameMaker
from skep.archive.http_headers import Headers
from skep.archive.received_headers import ReceivedHeaders
from skep.archive.records import read_records, split_stored
from skep.testing.clock import ManualClock

PLAIN = b"Server: nginx\r\nContent-Length: 2\r\nX-A:  b \r\n\r\n"


def stored(
    headers: Headers, *, body: bytes = b"ab", encoded: bool = False
) -> list[tuple[str, str]]:
    maker = FrameMaker(ManualClock(), Random(1))
    page = Exchange("http://h/", status=200, response_headers=headers, body=body, encoded=encoded)
    return list(split_stored(read_records(maker.exchange_frames(page))[0]).headers)


def test_a_well_formed_head_is_archived_as_it_came() -> None:
    headers = ReceivedHeaders(PLAIN)
    assert headers.lines_for(2, encoded=False) == PLAIN
    assert [name for name, _ in stored(headers)] == ["Server", "Content-Length", "X-A"]


@pytest.mark.parametrize(
    "head",
    [
        b"Content-Length: 3\r\n\r\n",
        b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n",
        b"Content-Length: 2\r\nContent-Length : 3\r\n\r\n",
        b"Content-Length: 2\r\nContent-Encoding: gzip\r\n\r\n",
        b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"Content-Length: 2\r\n X: continued\r\n\r\n",
        b"Content-Length: 2\r\nno colon\r\n\r\n",
        b"Content-Length: 2\r\n: no name\r\n\r\n",
        b"Content-Length: 2\r\nX: a\rb\r\n\r\n",
        b"Content-Length: 2\r\nX: a\nY: b\r\n\r\n",
        b"Content-Length: 2\r\nX: a\0b\r\n\r\n",
        b"Content-Length: 2\r\nX:\ta\r\n\r\n",
        b"Content-Length: 2\r\nX: a\r\n",
        b"Content-Length: 2\r\n\r\nTrailer: x\r\n\r\n",
        b"X: a\r\n\r\n",
        b"",
    ],
)
def test_any_other_head_is_split_and_written_anew(head: bytes) -> None:
    headers = ReceivedHeaders(head)
    assert headers.lines_for(2, encoded=False) is None
    assert stored(headers) == stored(list(headers))


def test_the_coding_of_a_body_that_is_stored_as_received_stays() -> None:
    headers = ReceivedHeaders(b"Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n")
    assert headers.lines_for(2, encoded=True) is not None
    assert ("Content-Encoding", "gzip") in stored(headers, encoded=True)


@pytest.mark.parametrize(
    ("head", "found"),
    [
        (b"a: 1\r\nX-B:2\r\n\r\n", "2"),
        (b"x-b: 1\r\nX-B: 2\r\n\r\n", "1, 2"),
        (b"x-b:  \r\n\r\n", ""),
        (b"x-bc: 1\r\n\r\n", None),
        (b"x-b : 1\r\n\r\n", None),
        (b"a: 1\r\n\r\nx-b: trailer\r\n\r\n", None),
        (b"x-b: \xe9\r\n\r\n", "\xe9"),
    ],
)
def test_a_header_is_found_with_and_without_splitting(head: bytes, found: str | None) -> None:
    early, late = ReceivedHeaders(head), ReceivedHeaders(head)
    assert len(late.fields) >= 0  # splits
    assert early.find(b"x-b") == late.find(b"x-b") == found


PIECES = st.sampled_from(
    [b"Content-Length: 2", b"content-length:2", b"Content-Encoding: gzip", b"x-b: 1", b"X-B: \xff",
     b":", b" ", b"\t", b"\r", b"\n", b"\0", b"\r\n", b"\r\n", b"\r\n", b"\r\n\r\n", b"a"]
)  # fmt: skip


@given(st.lists(PIECES, max_size=12).map(b"".join))
def test_both_ways_agree_on_every_head(head: bytes) -> None:
    """Fault 70: what is archived as it came reads back as what splitting finds."""
    headers = ReceivedHeaders(head)
    found = headers.find(b"x-b")
    written, split = stored(headers), stored(list(headers))
    assert sorted((name, value.strip()) for name, value in written) == sorted(
        (name, value.strip()) for name, value in split
    )
    values = [value for name, value in headers if name.lower() == "x-b"]
    assert found == (", ".join(values) if values else None)
