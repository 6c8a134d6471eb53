"""Archived records with decoded bodies, for callers that do not decode them: programs of an
older version, and users who read records with their own tools.

Used by centers, in threads. A body that is not stored with a coding stays as it is.
"""

from __future__ import annotations

from hashlib import sha256

from zstandard import ZstdCompressor

from skep.archive.frames import LEVEL
from skep.archive.http_headers import codings_on
from skep.archive.record_reader import frames_of
from skep.archive.records import WarcRecord, read_records, split_response, split_stored


def decoded_records(data: bytes) -> bytes:
    """The same frames; raises Malformed or TooLarge."""
    return b"".join(map(_decoded_frame, frames_of(data)))


def _decoded_frame(frame: bytes) -> bytes:
    (record,) = read_records(frame)
    if record.type != "response" or not codings_on(split_stored(record).headers):
        return frame
    text = _text(record)
    return ZstdCompressor(level=LEVEL, write_checksum=True).compress(text)


def _text(record: WarcRecord) -> bytes:
    _, headers, body = split_response(record)
    start = record.block.partition(b"\r\n")[0]
    lines = [": ".join(header).encode("latin-1") for header in headers]
    http = b"\r\n".join([start, *lines, b"", b""])
    about = {
        **record.headers,
        "WARC-Payload-Digest": f"sha256:{sha256(body).hexdigest()}",
        "Content-Length": str(len(http) + len(body)),
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in about.items())
    return b"".join((b"WARC/1.1\r\n", head.encode(), b"\r\n", http, body, b"\r\n\r\n"))
