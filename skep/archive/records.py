"""Reads archived WARC records: zstd frames become records and HTTP messages. Pure.

Used by centers, spiders and agents. No frame unpacks to more than it announces, and nothing is
unpacked or decoded beyond the caller's limit.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec
from zstandard import ZstdDecompressor, ZstdError

from skep.archive.frame_boundaries import content_size, frame_end
from skep.archive.http_headers import codings_on, decoded, fitting_headers
from skep.errors import Malformed, TooLarge

#: Maximum decompressed bytes that one call of `read_records` returns.
READ_LIMIT = 256 * 2**20
#: The header of a record whose body content rules have cut.
CUT_BY = "Skep-Cut"
#: The header of the records of a followed redirect: its number, from 1.
HOP = "Skep-Redirect-Hop"

_END_OF_RECORD = b"\r\n\r\n"


class WarcRecord(msgspec.Struct, frozen=True):
    """A record as it was archived. Header names are as written; `type` is `WARC-Type`."""

    type: str
    headers: dict[str, str]
    block: bytes


class ArchivedResponse(NamedTuple):
    """The HTTP answer in a `response` record."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes


class ArchivedRequest(NamedTuple):
    """The HTTP request in a `request` record."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes


def read_records(data: bytes, limit: int = READ_LIMIT) -> list[WarcRecord]:
    """The records of complete frames, in order; raises Malformed, or TooLarge over `limit`."""
    decompress = ZstdDecompressor().decompress
    records = []
    start = 0
    while start < len(data):
        end = frame_end(data, start)
        # The size is checked first and the output buffer is allocated for it: no frame can
        # unpack to more than it announces.
        size = content_size(data, start)
        limit -= size
        if limit < 0:
            raise TooLarge("the archived records are too large to be shown at once")
        try:
            records.append(_record(decompress(data[start:end])))
        except ZstdError as error:
            raise Malformed(f"a zstd frame of the archive is damaged: {error}") from error
        start = end
    return records


class FirstRecords:
    """Reads the first record at many locations with one decompressor: creating one takes as long
    as unpacking a page of 10 KB. Not thread-safe."""

    def __init__(self) -> None:
        self._decompress = ZstdDecompressor().decompress

    def read(self, data: bytes, limit: int = READ_LIMIT) -> WarcRecord:
        """Only the first record; raises Malformed or TooLarge."""
        if content_size(data) > limit:
            raise TooLarge("the archived record is too large to be shown at once")
        try:
            return _record(self._decompress(data))
        except ZstdError as error:
            raise Malformed(f"a zstd frame of the archive is damaged: {error}") from error


def _record(text: bytes) -> WarcRecord:
    head, found, rest = text.partition(b"\r\n\r\n")
    version, _, lines = head.partition(b"\r\n")
    if not found or not version.startswith(b"WARC/1."):
        raise Malformed("a frame of the archive does not contain a WARC record")
    headers = dict(_headers(lines, "utf-8"))
    length = headers.get("Content-Length", "")
    if not (length.isascii() and length.isdigit()) or rest[int(length) :] != _END_OF_RECORD:
        raise Malformed("the length of a WARC record differs from its header")
    return WarcRecord(headers.get("WARC-Type", ""), headers, rest[: int(length)])


def split_response(record: WarcRecord, limit: int = READ_LIMIT) -> ArchivedResponse:
    """(status, headers, body) of a `response` record, with the body decoded and matching headers;
    raises Malformed, or TooLarge when it decodes to more than `limit` bytes."""
    status, headers, body = split_stored(record)
    names = codings_on(headers)
    if not names:
        return ArchivedResponse(status, headers, body)
    body = decoded(body, names, limit)
    return ArchivedResponse(status, fitting_headers(headers, len(body), encoded=False), body)


def split_stored(record: WarcRecord) -> ArchivedResponse:
    """The same as stored: the `Content-Encoding` still applies to the body."""
    start, headers, body = _split(record.block)
    parts = start.split(" ", 2)
    if len(parts) < 2 or not (parts[1].isascii() and parts[1].isdigit()):  # noqa: PLR2004 - version, status
        raise Malformed("an archived response has no status line")
    return ArchivedResponse(int(parts[1]), headers, body)


def split_request(record: WarcRecord) -> ArchivedRequest:
    """(method, target, headers, body) of a `request` record; raises Malformed."""
    start, headers, body = _split(record.block)
    method, _, rest = start.partition(" ")
    target, found, _ = rest.rpartition(" ")
    if not found:
        raise Malformed("an archived request has no request line")
    return ArchivedRequest(method, target, headers, body)


def _split(block: bytes) -> tuple[str, list[tuple[str, str]], bytes]:
    head, found, body = block.partition(b"\r\n\r\n")
    if not found:
        raise Malformed("an archived HTTP message has no end of its headers")
    start, _, lines = head.partition(b"\r\n")
    return start.decode("latin-1"), _headers(lines, "latin-1"), body


def _headers(lines: bytes, charset: str) -> list[tuple[str, str]]:
    headers = []
    for line in lines.split(b"\r\n") if lines else ():
        name, _, value = line.decode(charset, "replace").partition(":")
        headers.append((name, value.strip(" \t")))
    return headers


def header_pairs(head: bytes) -> list[tuple[str, str]]:
    """The headers of an HTTP message, from its head."""
    return _headers(head.partition(b"\r\n")[2].removesuffix(_END_OF_RECORD), "latin-1")
