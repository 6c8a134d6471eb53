"""WARC/1.1 records, each one complete zstd frame: created by agents, read by centers.

Creating them is on the path of every page, so it is written for speed: one join, one
compression, no clock or random call that can be shared. Received data must never add a line to a
record: line breaks and NUL in headers become spaces.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from enum import StrEnum
from hashlib import sha256
from random import Random
from typing import NamedTuple

import msgspec
from zstandard import ZstdCompressor

from skep.archive.http_headers import fitting_headers
from skep.archive.long_heads import HEAD_ROOM, LINE_ROOM, Headers, cut_head, header_lines
from skep.archive.received_headers import ReceivedHeaders
from skep.archive.records import (
    CUT_BY,
    HOP,
    READ_LIMIT,
    ArchivedRequest,
    ArchivedResponse,
    FirstRecords,
    WarcRecord,
    read_records,
    split_request,
    split_response,
)
from skep.runtime.clock import Clock

#: The functions that read records are exported too, for plug-ins: it was one module.
__all__ = [
    "CUT_BY",
    "HOP",
    "LEVEL",
    "READ_LIMIT",
    "ArchivedRequest",
    "ArchivedResponse",
    "Cut",
    "Exchange",
    "Extract",
    "FirstRecords",
    "FrameMaker",
    "WarcRecord",
    "read_records",
    "split_request",
    "split_response",
]

#: On 10 KB pages level 3 is at most 5 % smaller and up to 40 % slower, depending on the page;
#: level -1 takes a quarter less time and 11 to 50 % more bytes.
LEVEL = 1
#: For requests, and for bodies that keep their coding: a level that does not compress what does
#: not get smaller. At level 1 such a record takes three times as long and is no smaller.
QUICK_LEVEL = -2
#: Bodies up to this size are hashed in pieces so small that hashlib keeps the GIL.
HASHED_AT_ONCE, HASHED_PIECE = 64 * 1024, 2047
Bytes = bytes | bytearray | memoryview

_END_OF_RECORD = b"\r\n\r\n"
_NOT_IN_A_URI = re.compile(r"[\x00-\x20\x7f-\xa0\u2028\u2029]")
_NOT_IN_A_LINE = str.maketrans("\r\n\0", "   ")


class Cut(StrEnum):
    """Why a body is truncated, in the terms of the WARC standard."""

    LENGTH = "length"
    TIME = "time"
    DISCONNECT = "disconnect"
    UNSPECIFIED = "unspecified"


class Extract(NamedTuple):
    """The part that content rules took from a body, and facts about the whole body."""

    #: The rules, in one line.
    rules: str
    #: Bytes of the whole body, decoded; -1 when it was not read completely.
    length: int
    #: Such as `sha256:...`; "" when it is not known.
    digest: str

    def lines(self) -> str:
        text = f"{CUT_BY}: {_one_line(self.rules)[:LINE_ROOM]}\r\n"
        if self.length >= 0:
            text += f"Skep-Original-Length: {self.length}\r\n"
        return text + f"Skep-Original-Digest: {self.digest}\r\n" if self.digest else text


class Exchange(msgspec.Struct, frozen=True, gc=False):
    """One download as it happened. Header texts are latin-1, as in HTTP; text that does not fit
    is stored as UTF-8. `status` 0 means that there was no answer."""

    #: The URI that answered, after redirects.
    uri: str
    method: str = "GET"
    request_headers: Headers = ()
    request_body: Bytes = b""
    status: int = 0
    reason: str = ""
    response_headers: Headers = ()
    #: Without transfer-encoding, and without content-encoding unless it is `encoded`.
    body: Bytes = b""
    #: The IP address that was connected to.
    address: str = ""
    cut: Cut | None = None
    extract: Extract | None = None
    #: Number of the redirect, from 1; 0 = the final answer.
    hop: int = 0
    #: The body is complete and as received: its Content-Encoding still applies.
    encoded: bool = False


class FrameMaker:
    """Creates records with one compressor that is reused.

    Not thread-safe: each thread needs its own maker.
    """

    def __init__(self, clock: Clock, rng: Random, level: int = LEVEL) -> None:
        self._clock = clock
        self._rng = rng
        # The checksum costs 1 us per 10 KB and detects a flipped bit on reading.
        self._compress = ZstdCompressor(level=level, write_checksum=True).compress
        self._compress_quickly = ZstdCompressor(level=QUICK_LEVEL, write_checksum=True).compress
        self._second = -1
        self._date = ""
        self._address = self._address_line = ""
        #: Request headers of the last record, and their lines. A run repeats the same tuple.
        self._sent: Headers = ()
        self._sent_lines: str | None = ""

    def exchange_frames(self, exchange: Exchange) -> bytes:
        """The frames of a `response` and of its `request`; only the latter without an answer."""
        uri = exchange.uri
        if not _is_plain(uri) or " " in uri:
            uri = _NOT_IN_A_URI.sub(_percent, uri)
        shared = self._shared_lines(uri, exchange)
        response_id, request_id = self._new_ids()
        if not exchange.status:
            return self._request(exchange, uri, request_id, shared)
        response = self._response(exchange, response_id, shared)
        shared += f"WARC-Concurrent-To: {response_id}\r\n"
        return response + self._request(exchange, uri, request_id, shared)

    def _whole_head(self, lines: list[str], of: str, shared: str) -> bytes:
        """A `metadata` record with every line of a head, of any length."""
        block = _encoded("\r\n".join(map(_one_line, lines)) + "\r\n")
        head = (
            f"WARC/1.1\r\nWARC-Type: metadata\r\nWARC-Record-ID: {self._new_ids()[0]}\r\n{shared}"
            f"WARC-Refers-To: {of}\r\nContent-Type: text/plain; charset=utf-8\r\n"
            f"Content-Length: {len(block)}\r\n\r\n"
        )
        return self._compress(b"".join((_encoded(head), block, _END_OF_RECORD)))

    def warcinfo_frame(self, filename: str, software: str) -> bytes:
        """The first record of a segment: the software and the format."""
        fields = (("software", software), ("format", "WARC File Format 1.1"))
        block = b"\r\n".join(
            [*(f"{name}: {_one_line(value)}".encode() for name, value in fields), b""]
        )
        head = (
            f"WARC/1.1\r\nWARC-Type: warcinfo\r\nWARC-Record-ID: {self._new_ids()[0]}\r\n"
            f"WARC-Date: {self._today()}\r\nWARC-Filename: {_one_line(filename)}\r\n"
            f"Content-Type: application/warc-fields\r\nContent-Length: {len(block)}\r\n\r\n"
        )
        return self._compress(b"".join((head.encode(), block, _END_OF_RECORD)))

    def _response(self, exchange: Exchange, record_id: str, shared: str) -> bytes:
        """A `response` record, followed by a `metadata` record if its head had to be cut."""
        body, whole = exchange.body, b""
        http = _answer_head(exchange)
        if len(http) > HEAD_ROOM:
            start = f"{exchange.status} {exchange.reason}"
            lines = [start, *header_lines(exchange.response_headers)]
            whole = self._whole_head(lines, record_id, shared)
            reason, headers = cut_head(exchange.reason, exchange.response_headers)
            short = msgspec.structs.replace(exchange, reason=reason, response_headers=headers)
            http = _answer_head(short)
        # Of the stored bytes, which `warcio check` computes again.
        about = f"{shared}WARC-Payload-Digest: sha256:{_hex_digest(body)}\r\n"
        if exchange.cut:
            about += f"WARC-Truncated: {exchange.cut}\r\n"
        if exchange.extract:
            about += exchange.extract.lines()
        text = _record_text("response", record_id, about, http, body)
        pack = self._compress_quickly if exchange.encoded else self._compress
        return pack(text) + whole

    def _request(self, exchange: Exchange, uri: str, record_id: str, shared: str) -> bytes:
        target, host = _target_and_host(uri)
        start = f"{exchange.method} {target} HTTP/1.1"
        whole = b""
        sent = self._usual_lines(exchange.request_headers)
        if sent is not None and _is_plain(start) and _is_plain(host):
            http = f"{start}\r\nHost: {host}\r\n{sent}\r\n".encode("ascii")
        else:
            http, is_cut = _request_head(start, host, exchange.request_headers)
            if is_cut:
                lines = [start, *header_lines(exchange.request_headers)]
                whole = self._whole_head(lines, record_id, shared)
        text = _record_text("request", record_id, shared, http, exchange.request_body)
        return self._compress_quickly(text) + whole

    def _usual_lines(self, headers: Headers) -> str | None:
        """Header lines that need no cleaning: plain, short and without Host. None = they do."""
        if headers is not self._sent or not isinstance(headers, tuple):
            self._sent, self._sent_lines = headers, _plain_lines(headers)
        return self._sent_lines

    def _shared_lines(self, uri: str, exchange: Exchange) -> str:
        lines = f"WARC-Date: {self._today()}\r\nWARC-Target-URI: {uri}\r\n"
        if exchange.address:
            if exchange.address != self._address:
                self._address = exchange.address
                self._address_line = f"WARC-IP-Address: {_NOT_IN_A_URI.sub('', self._address)}\r\n"
            lines += self._address_line
        if exchange.hop:
            lines += f"{HOP}: {exchange.hop}\r\n"
        return lines

    def _today(self) -> str:
        second = int(self._clock.now())
        if second != self._second:
            self._second = second
            self._date = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return self._date

    def _new_ids(self) -> tuple[str, str]:
        """Two random UUIDs (version 4) that differ in one digit, for one random number."""
        text = f"{self._rng.getrandbits(128):032x}"
        front = f"<urn:uuid:{text[:8]}-{text[8:12]}-4{text[13:16]}"
        back = f"{text[17:20]}-{text[20:]}>"
        return f"{front}-a{back}", f"{front}-b{back}"


def _record_text(kind: str, record_id: str, lines: str, http: bytes, body: Bytes) -> bytes:
    head = (
        f"WARC/1.1\r\nWARC-Type: {kind}\r\nWARC-Record-ID: {record_id}\r\n{lines}"
        f"Content-Type: application/http;msgtype={kind}\r\n"
        f"Content-Length: {len(http) + len(body)}\r\n\r\n"
    )
    return b"".join((_encoded(head), http, body, _END_OF_RECORD))


def _hex_digest(body: Bytes) -> str:
    """Hashes in small pieces: for larger ones hashlib releases the GIL, and getting it back takes
    longer than hashing a usual page."""
    if len(body) > HASHED_AT_ONCE:
        return sha256(body).hexdigest()
    digest, view = sha256(), memoryview(body)
    for start in range(0, len(body), HASHED_PIECE):
        digest.update(view[start : start + HASHED_PIECE])
    return digest.hexdigest()


def _answer_head(exchange: Exchange) -> bytes:
    start = f"HTTP/1.1 {exchange.status} {exchange.reason}"
    headers, length = exchange.response_headers, len(exchange.body)
    if isinstance(headers, ReceivedHeaders) and _is_plain(start):
        lines = headers.lines_for(length, encoded=exchange.encoded)
        if lines is not None:
            return b"%s\r\n%s" % (start.encode("ascii"), lines)
    return _http_head(start, fitting_headers(headers, length, encoded=exchange.encoded))


def _request_head(start: str, host: str, headers: Headers) -> tuple[bytes, bool]:
    """The head, and whether it had to be cut."""
    http = _http_head(start, headers)
    is_cut = len(http) > HEAD_ROOM
    if is_cut:
        headers = cut_head("", headers)[1]
        http = _http_head(start, headers)
    if b"\r\nhost:" not in http.lower():
        http = _http_head(start, (("Host", host), *headers))
    return http, is_cut


def _plain_lines(headers: Headers) -> str | None:
    lines = [": ".join(header) for header in headers]
    short = sum(map(len, lines)) < LINE_ROOM
    if not short or not all(map(_is_plain, lines)) or any(map(_begins_oddly, lines)):
        return None
    return "".join([f"{line}\r\n" for line in lines])


def _begins_oddly(line: str) -> bool:
    return line.startswith(" ") or line[:5].lower() == "host:"


def _is_plain(text: str) -> bool:
    """Whether a text is printable ASCII only."""
    return text.isascii() and text.isprintable()


def _http_head(start: str, headers: Headers) -> bytes:
    lines = [start, *map(": ".join, headers)]
    head = "\r\n".join(lines)
    if not _has_only_our_breaks(head, len(lines) - 1):
        head = "\r\n".join([_one_line(line) for line in lines])
    try:
        return head.encode("latin-1") + b"\r\n\r\n"
    except UnicodeEncodeError:
        return _encoded(head) + b"\r\n\r\n"


def _has_only_our_breaks(head: str, breaks: int) -> bool:
    """Counting is much cheaper than cleaning each line, and nearly every head is clean.

    A line that starts with white space would be read as a part of the line before it. Tabs are
    rare, and one character is found faster than two.
    """
    return (
        head.count("\r") == breaks
        and head.count("\n") == breaks
        and "\0" not in head
        and "\t" not in head
        and "\n " not in head
    )


def _one_line(text: str) -> str:
    return text.translate(_NOT_IN_A_LINE).lstrip()


def _percent(match: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in match[0].encode())


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def _target_and_host(uri: str) -> tuple[str, str]:
    """The target of the request line and the host, without the cost of a URL parser."""
    _, _, rest = uri.partition("#")[0].partition("://")
    slash, question = rest.find("/"), rest.find("?")
    if slash < 0 or 0 <= question < slash:
        authority, mark, query = rest.partition("?")
        target = f"/{mark}{query}"
    else:
        authority, target = rest[:slash], rest[slash:]
    return target, authority.rpartition("@")[2]
