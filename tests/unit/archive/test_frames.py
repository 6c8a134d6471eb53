"""WARC frames: what goes in comes out, nothing from outside adds a line, damage is said."""

from __future__ import annotations

import hashlib
import re
from random import Random

import msgspec
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from skep.archive.frame_boundaries import content_size, frame_end
from skep.archive.frames import (
    Cut,
    Exchange,
    FrameMaker,
    WarcRecord,
    read_records,
    split_request,
    split_response,
)
from skep.archive.long_heads import Headers
from skep.errors import Malformed, TooLarge
from skep.testing.clock import ManualClock

PAGE = Exchange(
    "https://user:pw@site.example:8443/a/b?c=d#part",
    method="POST",
    request_headers=[("User-Agent", "skep"), ("Content-Type", "text/plain")],
    request_body=b"question",
    status=201,
    reason="Created",
    response_headers=[("Server", "s"), ("Set-Cookie", "a=1"), ("Set-Cookie", "b=2")],
    body=b"<p>answer</p>" * 100,
    address="192.0.2.7",
)
WARC_NAMES = {
    "WARC-Type",
    "WARC-Record-ID",
    "WARC-Date",
    "WARC-Target-URI",
    "WARC-IP-Address",
    "WARC-Concurrent-To",
    "WARC-Payload-Digest",
    "WARC-Truncated",
    "Content-Type",
    "Content-Length",
}
names = st.text("abcdefghijklmnopqrstuvwxyzABC-_0123456789", min_size=1, max_size=20).map(
    "X-{}".format
)
values = st.text(st.characters(max_codepoint=255, exclude_characters="\r\n\0"), max_size=50).map(
    lambda text: text.strip(" \t")
)
hostile = st.text(st.sampled_from("\r\n\0\t :aW/\x85\u2028ä€\ud800"), max_size=30)


def new_maker() -> FrameMaker:
    return FrameMaker(ManualClock(), Random(5))


def both(exchange: Exchange) -> tuple[WarcRecord, WarcRecord]:
    response, request = read_records(new_maker().exchange_frames(exchange))
    return response, request


def test_a_download_is_kept_whole() -> None:
    """D8: request headers and body, response headers and body, address, time."""
    response, request = both(PAGE)
    assert (response.type, request.type) == ("response", "request")
    status, headers, body = split_response(response)
    assert (status, body) == (201, PAGE.body)
    assert headers == [*PAGE.response_headers, ("Content-Length", "1300")]
    asked = split_request(request)
    assert asked.method == "POST"
    assert asked.target == "/a/b?c=d"
    assert asked.headers == [("Host", "site.example:8443"), *PAGE.request_headers]
    assert asked.body == b"question"
    for record in (response, request):
        assert record.headers["WARC-Target-URI"] == PAGE.uri
        assert record.headers["WARC-IP-Address"] == "192.0.2.7"
        assert record.headers["WARC-Date"] == "2023-11-14T22:13:20Z"


@given(
    st.lists(st.tuples(names, values), max_size=8),
    st.binary(max_size=2000),
    st.lists(st.tuples(names, values), max_size=8),
    st.binary(max_size=200),
    st.integers(100, 999),
)
def test_headers_and_bodies_round_trip(
    sent: Headers, body: bytes, received: Headers, asked: bytes, status: int
) -> None:
    """D8, for any headers and bytes."""
    response, request = both(
        Exchange(
            "http://h/",
            request_headers=sent,
            request_body=asked,
            status=status,
            response_headers=received,
            body=body,
        )
    )
    length = ("Content-Length", str(len(body)))
    assert split_response(response) == (status, [*received, length], body)
    assert split_request(request) == ("GET", "/", [("Host", "h"), *sent], asked)


@given(hostile, hostile, hostile, hostile, st.lists(st.tuples(hostile, hostile), max_size=4))
def test_nothing_adds_a_line(
    uri: str, method: str, reason: str, address: str, headers: Headers
) -> None:
    """Fault 70: text from outside never makes a header, a record or an end of headers."""
    response, request = both(
        Exchange(
            f"http://h/{uri}",
            method=f"M{method}",
            request_headers=[("Host", "h"), *headers],
            status=200,
            reason=reason,
            response_headers=headers,
            body=b"body",
            address=address,
        )
    )
    for record in (response, request):
        assert set(record.headers) <= WARC_NAMES
        assert b"\0" not in record.block
    status, received, body = split_response(response)
    assert (status, len(received), body) == (200, len(headers) + 1, b"body")
    assert len(split_request(request).headers) == len(headers) + 1


def test_line_breaks_become_spaces() -> None:
    """Fault 70, an attack in plain sight."""
    response, request = both(
        Exchange(
            "http://h/\r\nWARC-Type: warcinfo",
            request_headers=[("A", "b\r\nEvil: 1")],
            status=200,
            response_headers=[("A", "b\r\n\r\n<script>"), (" Folded", "c")],
        )
    )
    assert response.headers["WARC-Target-URI"] == "http://h/%0D%0AWARC-Type:%20warcinfo"
    assert split_response(response).headers[:2] == [("A", "b    <script>"), ("Folded", "c")]
    assert split_request(request).headers[1] == ("A", "b  Evil: 1")


def test_headers_of_the_wire_are_renamed() -> None:
    """The body is decoded, so the headers about its encoding must not mislead a reader."""
    exchange = Exchange(
        "http://h/",
        status=200,
        response_headers=[
            ("content-encoding", "gzip"),
            ("Transfer-Encoding ", "chunked"),
            ("CONTENT-LENGTH", "17"),
            ("Vary", "*"),
        ],
        body=b"decoded",
    )
    assert split_response(both(exchange)[0]).headers == [
        ("X-Archive-Orig-Content-Encoding", "gzip"),
        ("X-Archive-Orig-Transfer-Encoding", "chunked"),
        ("X-Archive-Orig-Content-Length", "17"),
        ("Vary", "*"),
        ("Content-Length", "7"),
    ]


def test_a_true_length_is_not_said_twice() -> None:
    exchange = Exchange(
        "http://h/", status=200, response_headers=[("Content-Length", "2")], body=b"ab"
    )
    assert split_response(both(exchange)[0]).headers == [("Content-Length", "2")]


@pytest.mark.parametrize("cut", Cut)
def test_a_cut_body_says_so(cut: Cut) -> None:
    response, request = both(Exchange("http://h/", status=200, body=b"ab", cut=cut))
    assert response.headers["WARC-Truncated"] == cut.value
    assert "WARC-Truncated" not in request.headers


def test_without_an_answer_the_request_is_kept() -> None:
    (request,) = read_records(
        new_maker().exchange_frames(Exchange("http://h/x", request_body=b"q"))
    )
    assert (request.type, split_request(request).body) == ("request", b"q")
    assert "WARC-Concurrent-To" not in request.headers


def test_text_beyond_latin_1_is_kept_as_utf_8() -> None:
    exchange = Exchange("http://h/ü€", request_headers=[("A", "€ü")], status=200)
    response, request = both(exchange)
    assert response.headers["WARC-Target-URI"] == "http://h/ü€"
    assert "A: €ü\r\n".encode() in request.block


def test_ids_are_uuids_and_never_repeat() -> None:
    maker = new_maker()
    records = [record for _ in range(200) for record in read_records(maker.exchange_frames(PAGE))]
    ids = [record.headers["WARC-Record-ID"] for record in records]
    assert len(set(ids)) == 400
    form = re.compile(
        r"<urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[ab][0-9a-f]{3}-[0-9a-f]{12}>"
    )
    assert all(form.fullmatch(record_id) for record_id in ids)
    for response, request in zip(records[::2], records[1::2], strict=True):
        assert request.headers["WARC-Concurrent-To"] == response.headers["WARC-Record-ID"]


def test_the_date_follows_the_clock() -> None:
    clock = ManualClock(1_700_000_000.2)
    maker = FrameMaker(clock, Random(1))
    dates = []
    for _ in range(3):
        dates.append(read_records(maker.exchange_frames(PAGE))[0].headers["WARC-Date"])
        clock.advance(0.5)
    assert dates == ["2023-11-14T22:13:20Z"] * 2 + ["2023-11-14T22:13:21Z"]


@pytest.mark.parametrize(
    ("uri", "target", "host"),
    [
        ("http://h", "/", "h"),
        ("http://h?q=/", "/?q=/", "h"),
        ("http://h#f", "/", "h"),
        ("http://[::1]:80/a#b/c", "/a", "[::1]:80"),
        ("http://u:p@h:1/a@b?c", "/a@b?c", "h:1"),
        ("http://h/a b", "/a%20b", "h"),
    ],
)
def test_request_line_and_host(uri: str, target: str, host: str) -> None:
    (request,) = read_records(new_maker().exchange_frames(Exchange(uri)))
    assert split_request(request) == ("GET", target, [("Host", host)], b"")


@pytest.mark.parametrize("make", [bytes, bytearray, memoryview])
def test_a_body_is_any_buffer(make: type[bytes | bytearray | memoryview]) -> None:
    exchange = Exchange("http://h/", status=200, body=make(b"body"))
    assert split_response(both(exchange)[0]).body == b"body"


def test_warcinfo_opens_a_segment() -> None:
    (record,) = read_records(new_maker().warcinfo_frame("a.warc.zst\r\nX: y", "Skep/1"))
    assert record.type == "warcinfo"
    assert record.headers["WARC-Filename"] == "a.warc.zst  X: y"
    assert record.block == b"software: Skep/1\r\nformat: WARC File Format 1.1\r\n"


@pytest.mark.parametrize("body", [b"", b"a" * 400_000, Random(1).randbytes(400_000)])
def test_each_record_is_one_frame_that_knows_its_size(body: bytes) -> None:
    """Frames of one block, of repeated bytes and of many blocks."""
    frames = new_maker().exchange_frames(Exchange("http://h/", status=200, body=body))
    end = frame_end(frames)
    first = zstandard.ZstdDecompressor().decompress(frames[:end])
    assert content_size(frames) == len(first)
    assert zstandard.get_frame_parameters(frames).has_checksum
    assert frame_end(frames, end) == len(frames)


def test_a_torn_frame_is_never_taken_for_whole() -> None:
    frames = new_maker().exchange_frames(PAGE)
    end = frame_end(frames)
    for size in range(1, end):
        with pytest.raises(Malformed):
            frame_end(frames[:size])
        with pytest.raises(Malformed):
            read_records(frames[:size])
    for size in range(end + 1, len(frames)):
        with pytest.raises(Malformed):
            frame_end(frames[:size], end)


def test_a_flipped_bit_never_changes_a_record() -> None:
    """Some bits mean nothing to zstd; any other is found, by the checksum at the latest."""
    frames = new_maker().exchange_frames(PAGE)
    found = sum(damage_is_found(frames, position) for position in range(len(frames)))
    assert found > 0.95 * len(frames)


def damage_is_found(frames: bytes, position: int) -> bool:
    damaged = bytearray(frames)
    damaged[position] ^= 0x10
    try:
        assert read_records(bytes(damaged)) == read_records(frames)
    except (Malformed, TooLarge):
        return True
    return False


def test_no_more_is_unpacked_than_was_asked_for() -> None:
    bomb = new_maker().exchange_frames(Exchange("http://h/", status=200, body=bytes(10**7)))
    assert len(bomb) < 10_000
    with pytest.raises(TooLarge):
        read_records(bomb, limit=10**6)


def test_a_frame_that_hides_its_size_is_refused() -> None:
    packer = zstandard.ZstdCompressor(write_content_size=False)
    with pytest.raises(Malformed):
        read_records(packer.compress(b"WARC/1.1\r\n\r\n"))


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"no record",
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"WARC/1.1\r\nWARC-Type: x\r\n\r\n\r\n\r\n",
        b"WARC/1.1\r\nContent-Length: 3\r\n\r\nab\r\n\r\n",
        b"WARC/1.1\r\nContent-Length: 2\r\n\r\nabc\r\n\r\n",
        b"WARC/1.1\r\nContent-Length: -1\r\n\r\n\r\n\r\n",
    ],
)
def test_an_invalid_record_is_refused(text: bytes) -> None:
    with pytest.raises(Malformed):
        read_records(zstandard.ZstdCompressor().compress(text))


@pytest.mark.parametrize(
    "block", [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1\r\n\r\n", b"A B\r\n\r\n"]
)
def test_an_invalid_message_is_refused(block: bytes) -> None:
    with pytest.raises(Malformed):
        split_response(WarcRecord("response", {}, block))
    if not block.endswith(b"\r\n\r\n") or b" " not in block:
        with pytest.raises(Malformed):
            split_request(WarcRecord("request", {}, block))


@pytest.mark.parametrize("size", [0, 9, 2047, 2048, 10_007, 65_536, 65_537, 100_000])
@pytest.mark.parametrize("cut", [None, Cut.LENGTH])
def test_every_response_has_the_digest_of_its_payload(size: int, cut: Cut | None) -> None:
    """H6: of the bytes that are there; a request has none."""
    body = Random(size).randbytes(size)
    exchange = Exchange("http://h/", status=200, body=body, cut=cut)
    response, request = both(exchange)
    digest = hashlib.sha256(body).hexdigest()
    assert response.headers["WARC-Payload-Digest"] == f"sha256:{digest}"
    assert "WARC-Payload-Digest" not in request.headers


@pytest.mark.parametrize(
    "headers",
    [
        (),
        (("Accept", "*/*"), ("A", "b")),
        (("host", "other"), ("A", "b")),
        (("A", "tab\there"),),
        (("A", "ü"),),
        (("A", "€"),),
        (("A", "line\r\nEvil: 1"),),
        (("A", "x" * 5000),),
    ],
)
def test_what_a_run_sends_again_and_again_is_written_as_before(
    headers: tuple[tuple[str, str], ...],
) -> None:
    """H6: lines of the same tuple are made once; a list, or another tuple, gets its own."""
    maker = new_maker()
    for uri, sent in (("http://h/1", headers), ("http://g/2", headers), ("http://h/3", ())):
        exchange = Exchange(uri, request_headers=sent)
        quick, slow = (
            maker.exchange_frames(exchange),
            msgspec.structs.replace(exchange, request_headers=list(sent)),
        )
        (one,), (other,) = read_records(quick), read_records(maker.exchange_frames(slow))
        assert one.block == other.block
        hosts = [value for name, value in split_request(one).headers if name.lower() == "host"]
        assert hosts == ["other" if sent[:1] == (("host", "other"),) else uri[7:8]]
        assert b"\r\nEvil" not in one.block
