"""Content codings undone piece by piece, never beyond a limit. Runs on agents while bytes
arrive, and wherever a stored body is read.

Every coding gives pieces of 64 KiB at most, made when they are asked for, so that a bomb
costs one piece and one window of memory, whatever it would have become. Nothing here
does I/O, and nothing is decoded that the limit has no room for.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from typing import IO, Protocol, cast

import brotli  # type: ignore[import-untyped]  # the package ships no types
import zstandard

PIECE = 64 * 1024
#: More codings on top of each other than anybody has a use for are an attack.
STACK_LIMIT = 3
#: RFC 9659: the largest window that a client must accept for HTTP.
ZSTD_WINDOW = 8 * 2**20

#: Input of one step: a block of zstd has 4 bytes at least and gives 128 KiB at most.
ZSTD_STEP = 256

#: zlib's way to say "gzip header, largest window".
GZIP_BITS = zlib.MAX_WBITS + 16
#: RFC 1950: the upper half of the first byte, for a window of 32 KiB.
LARGEST_WINDOW = 7

ACCEPTED = "gzip, deflate, br, zstd"


class BadEncoding(Exception):
    """The body is not what its Content-Encoding says."""


class OverLimit(Exception):
    """The decoded body is larger than allowed; all that fits has been handed on."""


class DecodingStep(Protocol):
    """One coding: takes encoded bytes, gives decoded pieces."""

    def feed(self, data: bytes) -> Iterator[bytes]:
        """What can be decoded now; raises BadEncoding. Read it to its end before the next."""

    def finish(self) -> None:
        """Raises BadEncoding when the end of the stream has not come."""


class _Inflate:
    """gzip (several members, too) and deflate, with or without its zlib wrapper."""

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
                raise BadEncoding(f"the body is not {self._name}") from error
            if out:
                yield out
            data = inner.unused_data if inner.eof else inner.unconsumed_tail
            if not data and len(out) == PIECE:
                yield from _drained(inner)

    def _member(self, data: bytes) -> zlib._Decompress | None:
        """gzip files may be glued together; anything else behind the end is padding."""
        if self._inner is None:
            return self._open(data)
        if self._inner.eof:
            if self._bits != GZIP_BITS or data[:1] != b"\x1f":
                return None
            self._inner = zlib.decompressobj(GZIP_BITS)
        return self._inner

    def _open(self, data: bytes) -> zlib._Decompress:
        """Servers call both forms `deflate`; a zlib header shows in its first byte."""
        wrapped = data[0] & 0x0F == zlib.DEFLATED and data[0] >> 4 <= LARGEST_WINDOW
        self._bits = zlib.MAX_WBITS if wrapped else -zlib.MAX_WBITS
        self._inner = zlib.decompressobj(self._bits)
        return self._inner

    def finish(self) -> None:
        if self._inner is not None and not self._inner.eof:
            raise BadEncoding(f"the {self._name} stream ends too early")


def _drained(inner: zlib._Decompress) -> Iterator[bytes]:
    """A full piece may have left decoded bytes behind although all input is taken."""
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
            raise BadEncoding("the body is not br") from error

    def finish(self) -> None:
        if not self._inner.is_finished():
            raise BadEncoding("the br stream ends too early")


class _Zstd:
    """The push side of zstandard: it writes pieces of a fixed size into this object, those of
    some input at once. So it gets little input at a time."""

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
                raise BadEncoding("the body is not zstd") from error
            yield from self._out
            self._out.clear()

    def finish(self) -> None:
        """Between two frames, and only there, bytes that begin no frame are called so."""
        try:
            self._inner.write(b"\xff" * 4)
        except zstandard.ZstdError as error:
            if "unknown frame" in str(error).lower():
                return
        raise BadEncoding("the zstd stream ends too early")


_KNOWN = frozenset({"gzip", "deflate", "br", "zstd"})
_NONE = frozenset({"", "identity"})
#: With this coding a body is stored as received. The others are stored decoded: of FastWARC,
#: warcio and pywb none reads all of br, zstd, x-gzip and both forms of deflate.
STORED_CODING = "gzip"


def codings(value: str) -> list[str]:
    """The codings of a Content-Encoding header in the order of decoding; [] = none.

    Words that name no known coding (`utf-8`, `none`) count as identity. Raises BadEncoding
    for too many codings.
    """
    wanted = [name for name in reversed(_words(value)) if name in _KNOWN]
    if len(wanted) > STACK_LIMIT:
        raise BadEncoding(f"{len(wanted)} content codings on top of each other")
    return wanted


def unknown_codings(value: str) -> str:
    """A note on words of a Content-Encoding header that name no known coding; "" = none."""
    unknown = [name for name in _words(value) if name not in _KNOWN | _NONE]
    if not unknown:
        return ""
    shown = ", ".join(repr(name[:40]) for name in unknown[:STACK_LIMIT])
    return f"Content-Encoding {shown} is not a known coding; the body is kept as it came"


def _words(value: str) -> list[str]:
    return [name.strip().lower().removeprefix("x-") for name in value.split(",")]


class Decoder:
    """Undoes the codings of one body; `pieces` holds what came out, `limit` bytes at most."""

    __slots__ = ("_fed", "_room", "_stages", "pieces")

    def __init__(self, names: list[str], limit: int) -> None:
        self.pieces: list[bytes] = []
        self._room = limit
        self._fed = False
        self._stages = [_decoding_step(name) for name in names]

    def feed(self, data: bytes) -> None:
        """Raises BadEncoding or OverLimit; what fits is in `pieces` all the same."""
        self.pieces.extend(self.decoded(data))

    def decoded(self, data: bytes) -> Iterator[bytes]:
        """The same for one who keeps nothing: pieces are made when they are asked for."""
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
        """Raises BadEncoding when a stream was cut. An empty body has no coding at all."""
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
