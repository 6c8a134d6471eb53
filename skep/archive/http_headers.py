"""Headers of an HTTP message that match its stored body, and the codings of a body. Pure.

Used where records are created and where they are read. A stored `Content-Encoding` always means
that the body still has that coding; when a body was decoded, before it was stored or after it was
read, the header has another name.
"""

from __future__ import annotations

from collections.abc import Sequence

from skep.archive.content_decoding import BadEncoding, Decoder, OverLimit, codings
from skep.errors import Malformed, TooLarge

Headers = Sequence[tuple[str, str]]

#: Headers that describe the bytes on the wire, and their names with a changed body.
_OF_THE_WIRE = {
    "content-length": "X-Archive-Orig-Content-Length",
    "content-encoding": "X-Archive-Orig-Content-Encoding",
    "transfer-encoding": "X-Archive-Orig-Transfer-Encoding",
}
#: Length of the shortest of these: most names are shorter.
_SHORTEST = min(map(len, _OF_THE_WIRE))


def fitting_headers(headers: Headers, length: int, *, encoded: bool) -> list[tuple[str, str]]:
    """Headers for a body of `length` bytes; headers that do not match it are renamed."""
    fitting = []
    size = str(length)
    for header in headers:
        if len(header[0]) < _SHORTEST:
            fitting.append(header)
            continue
        name = header[0].strip().lower()
        renamed = _OF_THE_WIRE.get(name)
        if renamed is None or (encoded and name == "content-encoding"):
            fitting.append(header)
        elif header[1].strip() != size or name != "content-length":
            fitting.append((renamed, header[1]))
    fitting.append(("Content-Length", size))
    return fitting


def codings_on(headers: Headers) -> list[str]:
    """The codings of a stored body, in the order of decoding."""
    values = [value for name, value in headers if name.lower() == "content-encoding"]
    if not values:
        return []
    try:
        return codings(", ".join(values))
    except BadEncoding as error:
        raise damaged(error) from error


def decoded(body: bytes, names: list[str], limit: int) -> bytes:
    """A stored body, decoded; raises Malformed, or TooLarge over `limit`."""
    decoder = Decoder(names, limit)
    try:
        decoder.feed(body)
        decoder.finish()
    except BadEncoding as error:
        raise damaged(error) from error
    except OverLimit as error:
        raise too_large(limit) from error
    return b"".join(decoder.pieces)


def damaged(error: BadEncoding) -> Malformed:
    """The error for a damaged body: only bodies that could be decoded are stored encoded."""
    return Malformed(f"a stored body cannot be decoded: {error}")


def too_large(limit: int) -> TooLarge:
    return TooLarge(f"the stored body exceeds the limit of {limit} bytes when decoded")
