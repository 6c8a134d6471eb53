"""Headers that WARC readers cannot hold: cut in the record, whole in a record beside it."""

from __future__ import annotations

import io
import warnings
from random import Random

import pytest
import zstandard
from warcio.archiveiterator import ArchiveIterator as WarcioIterator

from skep.archive.frames import Exchange, FrameMaker, read_records, split_response
from skep.archive.long_heads import LINES_CUT
from skep.runtime.clock import SystemClock

with warnings.catch_warnings():  # FastWARC 1.1 warns about its own old names when imported
    warnings.simplefilter("ignore", DeprecationWarning)
    from fastwarc.warc import ArchiveIterator as FastIterator

LONG = "v" * 250_000


def frames_of(*exchanges: Exchange) -> bytes:
    maker = FrameMaker(SystemClock(), Random(1))
    return b"".join(map(maker.exchange_frames, exchanges))


ODD = [
    Exchange("http://h/1", status=200, response_headers=[("X-Long", LONG)], body=b"1"),
    Exchange("http://h/2", status=302, response_headers=[("Location", f"/{LONG}")], body=b"2"),
    Exchange("http://h/3", status=200, reason=LONG, body=b"3"),
    Exchange("http://h/4", status=200, response_headers=[("N" * 40_000, "x")], body=b"4"),
    Exchange("http://h/5", status=200, response_headers=[("A", "x" * 900)] * 270, body=b"5"),
    Exchange("http://h/6", status=200, request_headers=[("A", "x" * 900)] * 270, body=b"6"),
    Exchange(
        "http://h/7",
        status=200,
        response_headers=[*[("A", "x" * 50)] * 5000, ("Content-Type", "text/plain")],
        body=b"7",
    ),
    Exchange("http://h/" + "8" * 7990, status=200, response_headers=[("A", LONG)] * 5, body=b"8"),
    # Three bytes each, and lines that get longer because a body was decoded.
    Exchange("http://h/9", status=200, response_headers=[("A", "\u20ac" * 16_000)], body=b"9"),
    Exchange("http://h/10", status=200, request_headers=[("A", "\u20ac" * 16_000)], body=b"10"),
    Exchange("http://h/11", status=200, reason="\u20ac" * 16_000, body=b"11"),
    Exchange(
        "http://h/12", status=200, response_headers=[("Transfer-Encoding", "=")] * 1000, body=b"12"
    ),
]


@pytest.mark.parametrize("exchange", ODD, ids=lambda one: one.uri[:12])
def test_every_reader_goes_on_behind_a_long_header(exchange: Exchange) -> None:
    """H5: FastWARC and warcio read the page and the page after it."""
    plain = Exchange("http://h/after", status=200, body=b"after")
    data = frames_of(exchange, plain)
    fast = [
        (record.headers["WARC-Target-URI"], record.reader.read())
        for record in FastIterator(io.BytesIO(data))
        if record.headers["WARC-Type"] == "response"
    ]
    assert fast == [(exchange.uri, exchange.body), ("http://h/after", b"after")]
    unpacked = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(data), read_across_frames=True)
    slow = [
        (record.rec_headers.get_header("WARC-Target-URI"), record.content_stream().read())
        for record in WarcioIterator(io.BytesIO(unpacked.read()))
        if record.rec_type == "response"
    ]
    assert slow == fast


def test_the_whole_head_is_kept_beside_the_record() -> None:
    """H5: nothing of what the server said is lost."""
    response, beside, _request = read_records(frames_of(ODD[0]))
    assert (response.type, beside.type) == ("response", "metadata")
    assert beside.headers["WARC-Refers-To"] == response.headers["WARC-Record-ID"]
    assert f"X-Long: {LONG}".encode() in beside.block
    assert (LINES_CUT, "1") in split_response(response).headers
    # The type of the body stays, also behind a thousand other headers.
    response = read_records(frames_of(ODD[6]))[0]
    assert ("Content-Type", "text/plain") in split_response(response).headers
    usual = Exchange("http://h/", status=200, response_headers=[("A", "x" * 900)] * 20)
    assert [record.type for record in read_records(frames_of(usual))] == ["response", "request"]
