"""Reads archived records piece by piece: a frame of some kilobytes may unpack to gigabytes.

Centers use it for bodies and records that people ask for, in threads. Nothing here keeps
more than one piece, and no frame may need a larger window than ours do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from io import BytesIO

from zstandard import ZstdCompressor, ZstdDecompressor, ZstdError

from skep.archive.frames import LEVEL, READ_LIMIT
from skep.archive.walk import content_size, frame_end
from skep.errors import Malformed, NotFound, TooLarge

#: Bytes of one piece.
PIECE = 64 * 1024
#: Longest head of a record, and of the HTTP message in it.
HEAD_LIMIT = 512 * 1024
WINDOW_LIMIT = 8 * 2**20
_END_OF_HEAD = b"\r\n\r\n"
_TYPE, _TARGET = b"\r\nwarc-type:", b"\r\nwarc-target-uri:"


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
        """Up to the next empty line; raises Malformed."""
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
        """What follows, as far as it matters: no more than a piece; reads to the end."""
        rest = b""
        while more := self.piece():
            rest = (rest + more)[:PIECE]
        return rest


class StoredBody:
    """The body of the first `response` in some frames; raises NotFound, Malformed, TooLarge."""

    def __init__(self, data: bytes, limit: int) -> None:
        for frame in frames_of(data):
            self._reader = _Reader(frame)
            head = self._reader.head()
            if _value(head, _TYPE) == b"response":
                break
        else:
            raise NotFound("the archive has no response for this request")
        length = _value(head, b"\r\ncontent-length:")
        if not length.isdigit():
            raise Malformed("an archived record does not say its length")
        #: Bytes of the body.
        self.size = int(length) - len(self._reader.head())
        if not 0 <= self.size <= limit:
            raise TooLarge(f"the stored body has {self.size} bytes; the run's limit is {limit}")
        self._left = self.size

    def piece(self) -> bytes:
        """The next bytes, b"" at the end. The last ones come after the frame's checksum."""
        if not self._left:
            return b""
        piece = self._reader.piece(min(PIECE, self._left))
        self._left -= len(piece)
        if not piece or (not self._left and self._reader.rest() != _END_OF_HEAD):
            raise Malformed("a WARC record has another length than it says")
        return piece


def frames_of(data: bytes) -> Iterator[bytes]:
    """Whole frames, packed; raises Malformed."""
    start = 0
    while start < len(data):
        end = frame_end(data, start)
        yield data[start:end]
        start = end


def without_secrets(data: bytes, mask: Callable[[str], str]) -> bytes:
    """The frames without `request` records, which hold what was sent, and with masked URIs."""
    return b"".join(_masked_frames(data, mask))


def _masked_frames(data: bytes, mask: Callable[[str], str]) -> Iterator[bytes]:
    for frame in frames_of(data):
        head = _Reader(frame).head()
        if _value(head, _TYPE) == b"request":
            continue
        uri = _value(head, _TARGET)
        shown = mask(uri.decode(errors="replace")).encode()
        yield frame if shown == uri else _rewritten(frame, head, head.replace(uri, shown, 1))


def _rewritten(frame: bytes, before: bytes, after: bytes) -> bytes:
    if content_size(frame) > READ_LIMIT:
        raise TooLarge("the archived record unpacks to more than can be shown at once")
    text = ZstdDecompressor(max_window_size=WINDOW_LIMIT).decompress(frame)
    packer = ZstdCompressor(level=LEVEL, write_checksum=True)
    return packer.compress(after + text[len(before) :])


def _value(head: bytes, name: bytes) -> bytes:
    """Of a WARC header, b"" when there is none."""
    at = head.lower().find(name)
    if at < 0:
        return b""
    return head[at + len(name) : head.index(b"\r\n", at + len(name))].strip()
