"""Reads sitemaps as a stream inside the child, because they are not trusted.

Entities are not expanded, nothing is loaded from elsewhere, and size and number of entries are
limited. A broken sitemap yields the entries before the error, then the error.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from typing import Any
from urllib.parse import urljoin
from xml.parsers import expat

#: Limits of the sitemap standard: 50 MB unpacked, 50,000 entries.
SIZE_LIMIT = 50 * 2**20
ENTRY_LIMIT = 50_000
DEPTH_LIMIT = 64
URL_LIMIT = 8000
PIECE = 64 * 1024
_GZIP = b"\x1f\x8b"
_GZIP_WINDOW = 16 + zlib.MAX_WBITS
_IN_ROBOTS = re.compile(rb"^[ \t]*sitemap[ \t]*:[ \t]*(\S{1,8000})", re.IGNORECASE | re.MULTILINE)

#: A page, or `{"sitemap": address}` of another sitemap.
Entry = str | dict[str, str]


def entries(body: bytes, url: str) -> Iterator[Entry]:
    """Entries of a sitemap, a sitemap index, a list of URLs or a robots.txt, gzipped or not."""
    pieces = _unpacked(body)
    head = next(pieces, b"")
    found = _xml(head, pieces) if b"<" in head[:2000] else _plain(head, pieces)
    count = 0
    for kind, text in found:
        address = urljoin(url, text)
        if len(address) <= URL_LIMIT and address.startswith(("http://", "https://")):
            yield address if kind == "url" else {"sitemap": address}
            count += 1
        if count >= ENTRY_LIMIT:
            return


def _unpacked(body: bytes) -> Iterator[bytes]:
    size = 0
    for piece in _gunzipped(body) if body.startswith(_GZIP) else _cut(body):
        size += len(piece)
        if size > SIZE_LIMIT:
            raise ValueError(f"the sitemap unpacks to more than {SIZE_LIMIT} bytes")
        yield piece


def _cut(body: bytes) -> Iterator[bytes]:
    return (body[start : start + PIECE] for start in range(0, len(body), PIECE))


def _gunzipped(body: bytes) -> Iterator[bytes]:
    unpacker = zlib.decompressobj(_GZIP_WINDOW)
    for packed in _cut(body):
        piece = unpacker.decompress(packed, PIECE)
        while piece:
            yield piece
            piece = unpacker.decompress(unpacker.unconsumed_tail, PIECE)


def _plain(head: bytes, pieces: Iterator[bytes]) -> Iterator[tuple[str, str]]:
    body = b"".join([head, *pieces])
    if named := _IN_ROBOTS.findall(body):
        yield from (("sitemap", line.decode("utf-8", "replace")) for line in named)
        return
    for line in body.splitlines():
        if b"://" in line.strip()[:12]:
            yield "url", line.strip().decode("utf-8", "replace")


class _Locations:
    """Texts of `<loc>` inside `<url>` and `<sitemap>`."""

    def __init__(self) -> None:
        self.found: list[tuple[str, str]] = []
        self._path: list[str] = []
        self._text: list[str] | None = None

    def parser(self) -> Any:
        parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters
        parser.EntityDeclHandler = self._refuse
        return parser

    def _start(self, tag: str, _attributes: object) -> None:
        self._path.append(tag.rpartition(":")[2])
        if len(self._path) > DEPTH_LIMIT:
            raise ValueError(f"elements are nested deeper than {DEPTH_LIMIT} levels")
        if self._path[-1] == "loc":
            self._text = []

    def _characters(self, text: str) -> None:
        if self._text is not None and sum(map(len, self._text)) <= URL_LIMIT:
            self._text.append(text)

    def _end(self, _tag: str) -> None:
        name = self._path.pop()
        parent = self._path[-1] if self._path else ""
        if name == "loc" and parent in {"url", "sitemap"} and self._text is not None:
            self.found.append((parent, "".join(self._text).strip()))
        if name == "loc":
            self._text = None

    def _refuse(self, *_: object) -> None:
        raise ValueError("it declares entities, which sitemaps must not")


def _xml(head: bytes, pieces: Iterator[bytes]) -> Iterator[tuple[str, str]]:
    locations = _Locations()
    parser = locations.parser()
    try:
        parser.Parse(head, False)
        yield from _taken(locations)
        for piece in pieces:
            parser.Parse(piece, False)
            yield from _taken(locations)
        parser.Parse(b"", True)
    except expat.ExpatError as error:
        yield from _taken(locations)
        raise ValueError(f"it is not XML: {error}") from error
    yield from _taken(locations)


def _taken(locations: _Locations) -> list[tuple[str, str]]:
    found, locations.found = locations.found, []
    return found
