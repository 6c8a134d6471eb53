"""Decodes content codings piece by piece, never beyond a limit. Runs on agents while bytes
arrive, and wherever a stored body is read.

Every coding returns pieces of at most 64 KiB, created on request, so that a decompression bomb
costs one piece and one window of memory, whatever its decoded size. No I/O, and nothing beyond
the limit is decoded.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from typing import IO, Protocol, cast

import brotli  # type: ignore[import-untyped]  # the package ships no types
import zstandard

PIECE = 64 * 1024
#: Maximum number of nested codings; more are an attack.
STACK_LIMIT = 3
#: RFC 9659: the largest window that a client must accept for HTTP.
ZSTD_WINDOW = 8 * 2**20

#: Input of one step: a block of zstd has at least 4 bytes and yields at most 128 KiB.
ZSTD_STEP = 256

#: zlib's value for "gzip header, largest window".
GZIP_BITS = zlib.MAX_WBITS + 16
#: RFC 1950: the upper half of the first byte, for a window of 32 KiB.
LARGEST_WINDOW = 7

ACCEPTED = "gzip, deflate, br, zstd"


class BadEncoding(Exception):
    """The body does not match its Content-Encoding."""


class OverLimit(Exception):
    """The decoded body is larger than allowed; the part within the limit has been returned."""


class DecodingStep(Protocol):
    """One coding: takes encoded bytes, returns decoded pieces."""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The pieces that can be decoded now; raises BadEncoding. Read all before the next call."""

    def finish(self) -> None:
        """Raises BadEncoding when the stream is not complete."""


class _Inflate:
    """gzip (also with several members) and deflate, with or without its zlib wrapper."""

    __slots__ = ("_bits", "_inner", "_name")

    def __init__(self, name: str) -> None:
        self._name = name
        self._bits = GZIP_BITS if name == "gzip" else 0
        self._inner = zlib.decompressobj(GZIP_BITS) if self._bits else None

    def feed(self, data: bytes) -> Iterator[bytes]:
        while data:
            inner = self._member(data)
            if inner is None:
                return
            try:
                out = inner.decompress(data, PIECE)
            except zlib.error as error:
                raise BadEncoding(f"the body is not valid {self._name}") from error
            if out:
                yield out
            data = inner.unused_data if inner.eof else inner.unconsumed_tail
            if not data and len(out) == PIECE:
                yield from _drained(inner)

    def _member(self, data: bytes) -> zlib._Decompress | None:
        """gzip files can be concatenated; other bytes after the end are padding."""
        if self._inner is None:
            return self._open(data)
        if self._inner.eof:
            if self._bits != GZIP_BITS or data[:1] != b"\x1f":
                return None
            self._inner = zlib.decompressobj(GZIP_BITS)
        return self._inner

    def _open(self, data: bytes) -> zlib._Decompress:
        """Servers call both forms `deflate`; the first byte identifies a zlib header."""
        wrapped = data[0] & 0x0F == zlib.DEFLATED and data[0] >> 4 <= LARGEST_WINDOW
        self._bits = zlib.MAX_WBITS if wrapped else -zlib.MAX_WBITS
        self._inner = zlib.decompressobj(self._bits)
        return self._inner

    def finish(self) -> None:
        if self._inner is not None and not self._inner.eof:
            raise BadEncoding(f"the {self._name} stream is incomplete")


def _drained(inner: zlib._Decompress) -> Iterator[bytes]:
    """A full piece can leave decoded bytes behind although all input is consumed."""
    while not inner.eof and (out := inner.decompress(b"", PIECE)):
        yield out


class _Brotli:
    __slots__ = ("_inner",)

    def __init__(self) -> None:
        self._inner = brotli.Decompressor()

    def feed(self, data: bytes) -> Iterator[bytes]:
        inner = self._inner
        try:
            while not inner.is_finished():
                out = inner.process(data, output_buffer_limit=PIECE)
                if out:
                    yield out
                data = b""
                if len(out) < PIECE and inner.can_accept_more_data():
                    return
        except brotli.error as error:
            raise BadEncoding("the body is not valid br") from error

    def finish(self) -> None:
        if not self._inner.is_finished():
            raise BadEncoding("the br stream is incomplete")


class _Zstd:
    """The push API of zstandard: it writes pieces of a fixed size into this object, all pieces of
    an input at once. So it gets little input at a time."""

    __slots__ = ("_inner", "_out")

    def __init__(self) -> None:
        self._out: list[bytes] = []
        engine = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW)
        self._inner = engine.stream_writer(cast("IO[bytes]", self), write_size=PIECE, closefd=False)

    def write(self, piece: bytes) -> int:
        self._out.append(bytes(piece))
        return len(piece)

    def feed(self, data: bytes) -> Iterator[bytes]:
        for start in range(0, len(data), ZSTD_STEP):
            try:
                self._inner.write(data[start : start + ZSTD_STEP])
            except zstandard.ZstdError as error:
                raise BadEncoding("the body is not valid zstd") from error
            yield from self._out
            self._out.clear()

    def finish(self) -> None:
        """Only between two frames does the library report bytes that start no frame this way."""
        try:
            self._inner.write(b"\xff" * 4)
        except zstandard.ZstdError as error:
            if "unknown frame" in str(error).lower():
                return
        raise BadEncoding("the zstd stream is incomplete")


_KNOWN = frozenset({"gzip", "deflate", "br", "zstd"})
_NONE = frozenset({"", "identity"})
#: With this coding a body is stored as received. Others are stored decoded: none of FastWARC,
#: warcio and pywb reads all of br, zstd, x-gzip and both forms of deflate.
STORED_CODING = "gzip"


def codings(value: str) -> list[str]:
    """The codings of a Content-Encoding header in the order of decoding; [] = none.

    Words that are not known codings (`utf-8`, `none`) count as identity. Raises BadEncoding
    for too many codings.
    """
    wanted = [name for name in reversed(_words(value)) if name in _KNOWN]
    if len(wanted) > STACK_LIMIT:
        raise BadEncoding(f"{len(wanted)} nested content codings are too many")
    return wanted


def unknown_codings(value: str) -> str:
    """A note about unknown words in a Content-Encoding header; "" = none."""
    unknown = [name for name in _words(value) if name not in _KNOWN | _NONE]
    if not unknown:
        return ""
    shown = ", ".join(repr(name[:40]) for name in unknown[:STACK_LIMIT])
    return f"Content-Encoding {shown} is not a known coding; the body is stored as received"


def _words(value: str) -> list[str]:
    return [name.strip().lower().removeprefix("x-") for name in value.split(",")]


class Decoder:
    """Decodes one body; `pieces` holds the decoded bytes, at most `limit`."""

    __slots__ = ("_fed", "_room", "_stages", "pieces")

    def __init__(self, names: list[str], limit: int) -> None:
        self.pieces: list[bytes] = []
        self._room = limit
        self._fed = False
        self._stages = [_decoding_step(name) for name in names]

    def feed(self, data: bytes) -> None:
        """Raises BadEncoding or OverLimit; bytes within the limit are still in `pieces`."""
        self.pieces.extend(self.decoded(data))

    def decoded(self, data: bytes) -> Iterator[bytes]:
        """The same without storing: pieces are created on request."""
        self._fed = True
        for piece in _through(self._stages, data):
            self._room -= len(piece)
            if self._room < 0:
                if rest := piece[: self._room]:
                    yield rest
                self._room = 0
                raise OverLimit
            yield piece

    def finish(self) -> None:
        """Raises BadEncoding when a stream is incomplete. An empty body has no coding at all."""
        if self._fed:
            for stage in self._stages:
                stage.finish()


def _through(stages: Sequence[DecodingStep], data: bytes) -> Iterator[bytes]:
    if len(stages) == 1:
        yield from stages[0].feed(data)
        return
    for piece in stages[0].feed(data):
        yield from _through(stages[1:], piece)


def _decoding_step(name: str) -> DecodingStep:
    if name == "br":
        return _Brotli()
    if name == "zstd":
        return _Zstd()
    return _Inflate(name)
