"""Reads archived records piece by piece: a frame of a few kilobytes can unpack to gigabytes.

Centers use it for bodies and records that users request, in threads. It keeps no more than one
piece in memory, and rejects frames with a larger window than Skep's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from io import BytesIO

from zstandard import ZstdCompressor, ZstdDecompressor, ZstdError

from skep.archive.content_decoding import BadEncoding, Decoder, OverLimit
from skep.archive.frame_boundaries import content_size, frame_end
from skep.archive.frames import LEVEL
from skep.archive.http_headers import codings_on, damaged, too_large
from skep.archive.records import READ_LIMIT, header_pairs
from skep.errors import Malformed, NotFound, TooLarge
from skep.runtime.masking import mask_header, mask_text

#: Bytes of one piece.
PIECE = 64 * 1024
#: Maximum head of a record, and of the HTTP message in it.
HEAD_LIMIT = 512 * 1024
WINDOW_LIMIT = 8 * 2**20
_END_OF_HEAD = b"\r\n\r\n"
_TYPE, _TARGET = b"\r\nwarc-type:", b"\r\nwarc-target-uri:"
_LENGTH = b"\r\ncontent-length:"
#: A header with its continuation lines; the first line of a message does not match.
_HEADER = re.compile(rb"(?<=\n)([^\s:]+):[ \t]*([^\r\n]*(?:\r?\n[ \t][^\r\n]*)*)")


class _Reader:
    """One frame, unpacked as it is read."""

    def __init__(self, frame: bytes) -> None:
        unpacker = ZstdDecompressor(max_window_size=WINDOW_LIMIT)
        self._stream = unpacker.stream_reader(BytesIO(frame))
        self._ahead = b""

    def piece(self, size: int = PIECE) -> bytes:
        if self._ahead:
            piece, self._ahead = self._ahead[:size], self._ahead[size:]
            return piece
        try:
            return self._stream.read(size)
        except ZstdError as error:
            raise Malformed(f"a zstd frame of the archive is damaged: {error}") from error

    def head(self) -> bytes:
        """The bytes up to the next empty line; raises Malformed."""
        read = b""
        while (end := read.find(_END_OF_HEAD)) < 0:
            more = self.piece()
            if not more or len(read) > HEAD_LIMIT:
                raise Malformed("an archived record has no end of its headers")
            read += more
        end += len(_END_OF_HEAD)
        self._ahead = read[end:] + self._ahead
        return read[:end]

    def rest(self) -> bytes:
        """At most one piece of the following bytes; reads to the end."""
        rest = b""
        while more := self.piece():
            rest = (rest + more)[:PIECE]
        return rest


class _Payload:
    """The body in a `response` record, as it is stored; raises Malformed."""

    def __init__(self, frame: bytes) -> None:
        self._reader = _Reader(frame)
        length = _value(self._reader.head(), _LENGTH)
        if not length.isdigit():
            raise Malformed("an archived record has no length")
        http = self._reader.head()
        self.codings = codings_on(header_pairs(http))
        #: Size of the body.
        self.size = int(length) - len(http)
        if self.size < 0:
            raise Malformed("the length of a WARC record differs from its header")
        self._left = self.size

    def pieces(self) -> Iterator[bytes]:
        """The last piece is returned after the checksum of the frame was verified."""
        while self._left:
            piece = self._reader.piece(min(PIECE, self._left))
            self._left -= len(piece)
            if not piece or (not self._left and self._reader.rest() != _END_OF_HEAD):
                raise Malformed("the length of a WARC record differs from its header")
            yield piece

    def decoded(self, limit: int) -> Iterator[bytes]:
        """Raises TooLarge after `limit` bytes."""
        decoder = Decoder(self.codings, limit)
        try:
            for piece in self.pieces():
                yield from decoder.decoded(piece)
            decoder.finish()
        except BadEncoding as error:
            raise damaged(error) from error
        except OverLimit as error:
            raise too_large(limit) from error


class StoredBody:
    """The body of the first `response` in some frames, decoded; raises NotFound, Malformed,
    TooLarge. An encoded body is decoded twice: once to find its size."""

    def __init__(self, data: bytes, limit: int) -> None:
        responses = (f for f in frames_of(data) if _value(_Reader(f).head(), _TYPE) == b"response")
        frame = next(responses, None)
        if frame is None:
            raise NotFound("the archive has no response for this request")
        payload = _Payload(frame)
        #: Size of the body.
        self.size = payload.size
        self._pieces = payload.pieces()
        if payload.codings:
            self.size = sum(map(len, payload.decoded(limit)))
            self._pieces = _Payload(frame).decoded(limit)
        elif self.size > limit:
            raise TooLarge(f"the stored body has {self.size} bytes; the run's limit is {limit}")

    def piece(self) -> bytes:
        """The next bytes, b"" at the end."""
        return next(self._pieces, b"")


def response_head(data: bytes) -> bytes:
    """Status line and headers of the first `response`; raises NotFound, Malformed."""
    for frame in frames_of(data):
        reader = _Reader(frame)
        if _value(reader.head(), _TYPE) == b"response":
            return reader.head()
    raise NotFound("the archive has no response for this request")


def frames_of(data: bytes) -> Iterator[bytes]:
    """Complete frames, compressed; raises Malformed."""
    start = 0
    while start < len(data):
        end = frame_end(data, start)
        yield data[start:end]
        start = end


def without_secrets(data: bytes) -> bytes:
    """Only the `response` frames: the others contain what was sent. Masks URIs, and the values of
    headers that are not known to be harmless: a cookie is a login."""
    return b"".join(_masked_frames(data))


def _masked_frames(data: bytes) -> Iterator[bytes]:
    for frame in frames_of(data):
        reader = _Reader(frame)
        head = reader.head()
        if _value(head, _TYPE) != b"response":
            continue  # `metadata` contains the whole head of a request that was cut
        http = reader.head()
        shown = _masked_target(head), _HEADER.sub(_masked_header, http)
        yield frame if shown == (head, http) else _rewritten(frame, head, http, *shown)


def _masked_target(head: bytes) -> bytes:
    start, end = _span(head, _TARGET)
    value = head[start:end]
    shown = mask_text(value.decode(errors="replace")).encode()
    return head if shown == value else head[:start] + shown + head[end:]


def _masked_header(line: re.Match[bytes]) -> bytes:
    """Bytes that are not UTF-8 stay unchanged in values that are shown."""
    name, value = (part.decode(errors="surrogateescape") for part in line.groups())
    shown = mask_header(name, value)
    return line[0] if shown == value else f"{name}: {shown}".encode(errors="surrogateescape")


def _rewritten(frame: bytes, head: bytes, http: bytes, new_head: bytes, new_http: bytes) -> bytes:
    """The frame with other heads; piece by piece, so that only compressed data is in memory."""
    size = content_size(frame)
    if size > READ_LIMIT:
        raise TooLarge("the archived record is too large to be shown at once")
    start, end = _span(new_head, _LENGTH)
    length = int(new_head[start:end]) + len(new_http) - len(http)
    new_head = b"%b %d%b" % (new_head[:start], length, new_head[end:])
    first = new_head + new_http
    reader = _Reader(frame)
    reader.head()
    reader.head()
    packer = ZstdCompressor(level=LEVEL, write_checksum=True)
    out = packer.compressobj(size=size - len(head) - len(http) + len(first))
    try:
        parts = [out.compress(first), *map(out.compress, iter(reader.piece, b"")), out.flush()]
    except ZstdError as error:
        raise Malformed(f"an archived record has a wrong length: {error}") from error
    return b"".join(parts)


def _value(head: bytes, name: bytes) -> bytes:
    """The value of a header; b"" when it is missing."""
    start, end = _span(head, name)
    return head[start:end].strip()


def _span(head: bytes, name: bytes) -> tuple[int, int]:
    """The position of the value of a header; an empty span when it is missing."""
    at = head.lower().find(name)
    if at < 0:
        return 0, 0
    start = at + len(name)
    return start, head.index(b"\r\n", start)
